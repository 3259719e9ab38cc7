"""`slurm-operator up` interrupted by the user at every step it announces: one clear line, and the next `up` goes on."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from slurm_local import tryout
from slurm_local.layout import Names
from slurm_local.progress import Progress
from slurm_local.recipes import project
from slurm_operator.cli import main
from slurm_operator.cli.clusters import Cluster
from slurm_operator.cli.status import Glance, Line
from slurm_operator.errors import UserError

STEPS = (
    "starting the control plane and 3 nodes",
    "building the images",
    "loading the images",
    "installing the operator",
    "creating the Slurm cluster",
    "waiting for the Slurm cluster",
    "running a first job",
)
NOTE = "2 of 3 workers are ready; waiting for the image of worker pod small-1 to arrive on node-2, which takes a while"


class Interrupting(Progress):
    """Sends the signal of Ctrl-C as soon as one of the steps has begun."""

    at = ""

    @contextlib.contextmanager
    def step(self, what: str, usual: float) -> Iterator[None]:
        with super().step(what, usual):
            if what == self.at:
                signal.raise_signal(signal.SIGINT)
            yield


class FakeKubectl:
    def __call__(self, *arguments: str, **_: Any) -> str:
        return "5" if "--parsable" in arguments else "small-0\nbig-0\n"


def fake_stage(name: str, nodes: list[Any], progress: Progress) -> Any:
    with progress.step(STEPS[0], 8):
        pass
    return SimpleNamespace(
        names=Names(name), kubeconfig=Path("kubeconfig"), kubectl=FakeKubectl(), load_image=lambda _: None
    )


def fake_build(names: tuple[str, ...], progress: Progress) -> list[Path]:
    with progress.step(STEPS[1], 90):
        return [Path(f"{name}.tar") for name in names]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that takes long or needs a machine is pretended; the steps and their order are the real ones."""
    pause = asyncio.sleep
    glances = iter([Glance((Line("NodeSet", "small", "no", NOTE),)), *[_ready()] * 9])

    async def look(*_: object, **__: object) -> Glance:
        return next(glances)

    async def nothing(*_: object, **__: object) -> None:
        await pause(0)

    @contextlib.asynccontextmanager
    async def client(_: object) -> Any:
        yield None

    monkeypatch.setattr(tryout, "Progress", Interrupting)
    monkeypatch.setattr(tryout, "up", fake_stage)
    monkeypatch.setattr("slurm_local.images.build", fake_build)
    monkeypatch.setattr("slurm_local.settings.locked", lambda _: contextlib.nullcontext(0))
    monkeypatch.setattr(tryout, "load", lambda *_: None)
    monkeypatch.setattr(tryout, "Client", client)
    for name in ("install", "wait_ready", "_create"):
        monkeypatch.setattr(tryout, name, nothing)
    monkeypatch.setattr(tryout, "glance", look)
    monkeypatch.setattr(asyncio, "sleep", lambda _: pause(0))
    monkeypatch.setattr(sys, "argv", [str(Path.cwd() / ".venv/bin/slurm-operator")])


def _ready() -> Glance:
    return Glance((Line("NodeSet", "small", "yes"),), (Cluster("slurm", "slurm", {"idle": 3}),))


@pytest.fixture
def from_a_terminal() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C; this is about the foreground."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("from_a_terminal")
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_says_how_to_go_on_and_the_next_up_does(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Interrupting, "at", step)
    assert main(["up", "--name", "mine"]) == 130

    said = capsys.readouterr()
    before, _, advice = said.err.partition("\ninterrupted: ")
    assert before.splitlines()[-1].startswith(f"{step}: interrupted after")
    words = " ".join(advice.split())
    assert words.endswith("slurm-operator down --name mine` removes it")
    assert "slurm-operator up --name mine` goes on" in words
    assert "Traceback" not in said.err

    monkeypatch.setattr(Interrupting, "at", "")
    assert main(["up", "--name", "mine"]) == 0
    assert "$ srun -N2 hostname\nsmall-0\nbig-0" in capsys.readouterr().out


def test_away_from_a_terminal_it_is_plain_text_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"]) == 0

    said = capsys.readouterr()
    text = said.out + said.err
    assert "waiting for the image of worker pod small-1" in " ".join(text.split())
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\x1b" not in text
    assert "\r" not in text


def test_an_interrupt_of_a_cluster_of_ones_own_names_its_context() -> None:
    commands = tryout.Commands("dev", "prod")

    assert commands.up_or_down("up").endswith("slurm-operator up --context prod")
    assert "KUBECONFIG" not in commands.next()
    assert "kubectl --context prod exec -n slurm -it deploy/login -- bash" in commands.next()


def test_a_machine_without_kubectl_is_offered_the_stages_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    words = " ".join(tryout.Commands("mine", "").next().replace("\\\n", "").split())
    assert "local kubectl --name mine exec -n slurm -it deploy/login -- bash" in words


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `down` did to a cluster of one's own, which has no NodeSets."""
    done: list[str] = []

    async def none(*_: object) -> list[object]:
        return []

    async def removed(*_: object, force: bool) -> None:
        done.append("forced" if force else "removed")

    class Manifests:
        def __init__(self, *_: object) -> None:
            pass

        async def delete(self, _: object) -> None:
            done.append("deleted")

    monkeypatch.setattr(tryout, "Manifests", Manifests)
    monkeypatch.setattr(tryout, "all_nodesets", none)
    monkeypatch.setattr(tryout, "uninstall", removed)
    monkeypatch.setattr(tryout, "load", lambda **_: None)
    return done


def test_a_cluster_of_ones_own_is_gone_before_its_operator(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator ends its workers in order."""
    answers = iter([["slurm/small"], ["slurm/small"], ["slurm/small"], []])

    async def left(*_: object) -> list[str]:
        found = next(answers)
        done.append(" ".join(found) or "none")
        return found

    async def idle(*_: object) -> None:
        done.append("idle")

    monkeypatch.setattr(tryout, "all_nodesets", left)
    monkeypatch.setattr(tryout, "refuse_busy", idle)
    assert main(["down", "--context", "prod"]) == 0
    assert done == ["slurm/small", "idle", "deleted", "slurm/small", "slurm/small", "none", "removed"]


@pytest.mark.parametrize("force", [False, True])
def test_a_cluster_of_ones_own_is_not_removed_while_jobs_run(
    done: list[str], force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object) -> None:
        raise UserError("job 12 of alice on gpu-1")

    monkeypatch.setattr(tryout, "refuse_busy", busy)
    assert main(["down", "--context", "prod", *(["--force"] if force else [])]) == (0 if force else 1)
    assert done == (["deleted", "forced"] if force else [])


REFERENCES = {
    "controllerRef": "Controller",
    "accountingRef": "Accounting",
    "sssdConfRef": "Secret",
    "configFileRefs": "ConfigMap",
    "persistentVolumeClaim": "PersistentVolumeClaim",
}


def referred(value: Any) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the objects that a part of a manifest refers to."""
    if isinstance(value, list):
        for item in value:
            yield from referred(item)
    elif isinstance(value, dict):
        for field, item in value.items():
            for ref in item if isinstance(item, list) else [item]:
                if field in REFERENCES and isinstance(ref, dict):
                    yield REFERENCES[field], ref.get("name") or ref["claimName"]
            yield from referred(item)


def test_the_example_creates_an_object_before_it_is_referred_to() -> None:
    """Otherwise the first thing that a new cluster shows is a Warning about an object that does not exist."""
    documents = list(yaml.safe_load_all((project() / tryout.EXAMPLE).read_text()))
    known: set[tuple[str, str]] = set()
    for document in documents:
        assert set(referred(document)) <= known, f"{document['kind']} {document['metadata']['name']}"
        known.add((document["kind"], document["metadata"]["name"]))
    assert {kind for document in documents for kind, _ in referred(document)} == set(REFERENCES.values())
