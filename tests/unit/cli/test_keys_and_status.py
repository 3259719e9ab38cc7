"""`keys` prints a Secret to apply; `status` shows a cluster at a glance."""

import json
from base64 import b64decode
from pathlib import Path

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


def put(server: FakeApiServer, kind: str, name: str, *conditions: tuple[str, str, str], namespace: str = PLACE) -> None:
    found = server.cluster.kind(kind)
    server.cluster.create(found, {"metadata": {"name": name}, "spec": {}}, namespace)
    listed = [
        {"type": type_, "status": state, "reason": "R", "message": text, "observedGeneration": 1}
        for type_, state, text in conditions
    ]
    patch = {"status": {"conditions": listed}}
    server.cluster.patch(found, name, namespace, patch, writer=Writer("operator", subresource="status"))


async def test_a_cluster_at_a_glance(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "Controller", "slurm", ("Ready", "True", "slurmctld answers"))
    put(server, "NodeSet", "gpu", ("Ready", "True", ""))
    assert await command("status", "-n", PLACE) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["Controller/slurm", "yes"]
    put(
        server,
        "Accounting",
        "slurm",
        ("Ready", "False", "waiting"),
        ("Degraded", "True", "the database does not answer: check that it runs, and its password"),
    )
    assert await command("status", "-n", PLACE) == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "Accounting/slurm        no        the database does not answer: check that it"
    assert rows[3].strip() == "runs, and its password"


async def test_the_namespace_is_the_kubeconfigs(
    server: FakeApiServer, kubeconfig: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "Controller", "slurm", ("Ready", "True", ""), namespace="kube-system")
    assert await command("status") == 1
    assert "no Slurm cluster in namespace default\n  choose another with --namespace" in capsys.readouterr().err
    _set_namespace(kubeconfig, "kube-system")
    assert await command("status") == 0
    assert "Controller/slurm" in capsys.readouterr().out


def _set_namespace(kubeconfig: Path, namespace: str) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(config))


async def test_all_namespaces_are_told_apart(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in ("default", "kube-system"):
        put(server, "Controller", "slurm", ("Ready", "True", ""), namespace=namespace)
        put(server, "NodeSet", "a-rather-long-name", ("Ready", "True", ""), namespace=namespace)
    assert await command("status", "-A") == 0
    shown = capsys.readouterr().out
    assert [row.split() for row in shown.splitlines()[1:5]] == [
        ["default/Controller/slurm", "yes"],
        ["default/NodeSet/a-rather-long-name", "yes"],
        ["kube-system/Controller/slurm", "yes"],
        ["kube-system/NodeSet/a-rather-long-name", "yes"],
    ]
    assert "Slurm nodes of kube-system/slurm" in shown


async def test_the_same_for_programs(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "Controller", "slurm", ("Ready", "True", ""), ("Degraded", "True", "an old key is in use"))
    assert await command("status", "-o", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "ready": True,
        "resources": [
            {
                "kind": "Controller",
                "name": "slurm",
                "namespace": PLACE,
                "ready": True,
                "verdict": "degraded",
                "note": "R: an old key is in use",
            }
        ],
        "clusters": [
            {
                "namespace": PLACE,
                "name": "slurm",
                "nodes": {"idle": 0, "allocated": 0, "draining": 0, "drained": 0, "down": 0, "other": 0},
                "jobs": None,
                "stale": True,
                "silentSeconds": None,
                "unknown": "no RestApi refers to it",
            }
        ],
    }


@pytest.mark.parametrize(
    ("conditions", "verdict", "note"),
    [
        ([], "no", "the operator has not looked at it yet"),
        ([("Ready", "True", "")], "yes", ""),
        ([("Ready", "True", ""), ("Degraded", "False", "")], "yes", ""),
        ([("Ready", "True", ""), ("Degraded", "True", "c")], "degraded", "R: c"),
        ([("Ready", "True", ""), ("Degraded", "True", "")], "degraded", "R"),
        ([("Ready", "Unknown", "a")], "unknown", "a"),
        ([("Ready", "False", "a")], "no", "a"),
        ([("Ready", "False", "a"), ("Progressing", "True", "b")], "no", "b"),
        ([("Ready", "False", "a"), ("Progressing", "True", "b"), ("Degraded", "True", "c")], "no", "c"),
        ([("Ready", "False", "a"), ("Degraded", "True", "")], "no", "a"),
    ],
)
async def test_what_is_waited_for(
    server: FakeApiServer, client: Client, conditions: list[tuple[str, str, str]], verdict: str, note: str
) -> None:
    put(server, "RestApi", "slurm", *conditions)
    found = await glance(client, PLACE)
    assert [(line.verdict, line.note) for line in found.lines] == [(verdict, note)]
    assert found.ready == (verdict in ("yes", "degraded"))
    assert found.well == (verdict == "yes")


async def test_an_object_that_this_version_cannot_read_is_not_left_out(server: FakeApiServer, client: Client) -> None:
    put(server, "RestApi", "slurm", ("Ready", "True", ""))
    server.cluster.patch(server.cluster.kind("RestApi"), "slurm", PLACE, {"spec": {"replicas": "many"}})
    (line,) = (await glance(client, PLACE)).lines
    assert (line.kind, line.name, line.verdict, line.ready) == ("RestApi", "slurm", "unknown", False)
    assert line.note.startswith("it cannot be read: ")


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
    waiting = Glance((Line("Controller", "slurm", "no", "waiting"),))
    assert list(waiting.changes(shown)) == ["Controller/slurm waiting"]
    assert list(waiting.changes(shown)) == []
    assert list(Glance((Line("Controller", "slurm", "yes"),)).changes(shown)) == ["Controller/slurm is ready"]
    degraded = Glance((Line("Controller", "slurm", "degraded", "OldKey: an old key is in use"),))
    assert list(degraded.changes(shown)) == ["Controller/slurm is ready, but degraded: OldKey: an old key is in use"]
    assert Glance(()).ready is False


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
