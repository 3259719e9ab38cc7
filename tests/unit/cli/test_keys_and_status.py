"""`keys` prints a Secret to apply; `status` shows a cluster at a glance."""

from base64 import b64decode
from typing import Any

import pytest
import yaml

from slurm_operator.cli import main
from slurm_operator.cli.keys import key_secret
from slurm_operator.cli.status import Glance, Line, glance
from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from tests.fakes.apiserver import FakeApiServer, Refuse, Writer
from tests.unit.cli.conftest import Command

PLACE = "default"


def test_keys_are_fresh_and_fit_for_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "--name", "mine", "--namespace", "slurm"]) == 0
    secret = yaml.safe_load(capsys.readouterr().out)
    assert secret["metadata"] == {"name": "mine", "namespace": "slurm"}
    assert set(secret["data"]) == {"slurm.key", "jwt.key", "db-password"}
    assert len(b64decode(secret["data"]["slurm.key"])) >= 16
    assert len(b64decode(secret["data"]["jwt.key"])) >= 32
    assert key_secret("mine")["metadata"] == {"name": "mine"}
    assert key_secret("mine")["data"] != key_secret("mine")["data"]


def put(server: FakeApiServer, kind: str, name: str, *conditions: tuple[str, str, str], **status: Any) -> None:
    found = server.cluster.kind(kind)
    server.cluster.create(found, {"metadata": {"name": name}, "spec": {}}, PLACE)
    listed = [
        {"type": type_, "status": state, "reason": "R", "message": text, "observedGeneration": 1}
        for type_, state, text in conditions
    ]
    patch = {"status": {"conditions": listed, **status}}
    server.cluster.patch(found, name, PLACE, patch, writer=Writer("operator", subresource="status"))


async def test_a_cluster_at_a_glance(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "Controller", "slurm", ("Ready", "True", "slurmctld answers"))
    put(server, "NodeSet", "gpu", ("Ready", "True", ""), slurmIdle=2, slurmAllocated=1, slurmDrain=1)
    assert await command("status", "-n", PLACE) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["Controller/slurm", "yes"]
    assert "Slurm nodes: 2 idle, 1 allocated, 1 draining" in shown
    put(
        server,
        "Accounting",
        "slurm",
        ("Ready", "False", "waiting"),
        ("Degraded", "True", "the database does not answer: check that it runs, and its password"),
    )
    assert await command("status", "-n", PLACE) == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "Accounting/slurm        no     the database does not answer: check that it"
    assert rows[3].strip() == "runs, and its password"


@pytest.mark.parametrize(
    ("conditions", "note"),
    [
        ([], "the operator has not looked at it yet"),
        ([("Ready", "True", "")], ""),
        ([("Ready", "False", "a")], "a"),
        ([("Ready", "False", "a"), ("Progressing", "True", "b")], "b"),
        ([("Ready", "False", "a"), ("Progressing", "True", "b"), ("Degraded", "True", "c")], "c"),
        ([("Ready", "False", "a"), ("Degraded", "True", "")], "a"),
    ],
)
async def test_what_is_waited_for(
    server: FakeApiServer, client: Client, conditions: list[tuple[str, str, str]], note: str
) -> None:
    put(server, "RestApi", "slurm", *conditions)
    found = await glance(client, PLACE)
    assert [(line.ready, line.note) for line in found.lines] == [(note == "", note)]
    assert found.ready == (note == "")


async def test_what_was_reported_for_an_older_spec_does_not_count(server: FakeApiServer, client: Client) -> None:
    put(server, "RestApi", "slurm", ("Ready", "True", ""))
    server.cluster.patch(server.cluster.kind("RestApi"), "slurm", PLACE, {"spec": {"replicas": 2}})
    assert not (await glance(client, PLACE)).ready


async def test_nothing_there_ends_in_one_clear_line(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("status", "-n", "kube-system") == 1
    assert "there is no Slurm cluster in namespace kube-system" in capsys.readouterr().err
    server.inject(Refuse(404), "list", "controllers", times=None)
    assert await command("status") == 1
    assert "run `slurm-operator install`" in capsys.readouterr().err


def test_progress_is_told_once() -> None:
    shown: set[str] = set()
    waiting = Glance((Line("Controller", "slurm", ready=False, note="waiting"),), {})
    assert list(waiting.changes(shown)) == ["Controller/slurm waiting"]
    assert list(waiting.changes(shown)) == []
    assert list(Glance((Line("Controller", "slurm", ready=True, note=""),), {}).changes(shown)) == [
        "Controller/slurm is ready"
    ]
    assert Glance((), {}).ready is False


def test_without_kubeconfig_the_way_out_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_operator.cli.status.load", _no_kubeconfig)
    assert main(["status"]) == 1
    assert capsys.readouterr().err.splitlines() == ["slurm-operator: no kubeconfig", "  give one with --kubeconfig"]


def _no_kubeconfig(path: str, context: str) -> None:
    raise UserError("no kubeconfig", "give one with --kubeconfig")


@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_how_a_command_ends_when_nobody_listens(
    failure: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def close(self) -> None:
            return

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("slurm_operator.cli.keys.key_secret", fail)
    monkeypatch.setattr("slurm_operator.cli.sys.stderr", Closed())
    assert main(["keys"]) == code
