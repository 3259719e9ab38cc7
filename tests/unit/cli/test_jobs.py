"""The jobs that `status` shows: asked through the API server, and never guessed."""

import json

import pytest

from slurm_operator.cli.jobs import jobs_of
from slurm_operator.cli.keys import key_secret
from slurm_operator.kube.client import Client
from slurm_operator.kube.transport import Answer
from tests.fakes.apiserver import FakeApiServer

PLACE = "default"


@pytest.fixture
def asked(server: FakeApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A cluster with a slurmrestd behind the API server; what it was asked, and with whose token."""
    cluster, questions = server.cluster, list[tuple[str, str]]()
    key = {"jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}}
    cluster.create(cluster.kind("Secret"), key_secret("slurm-keys", PLACE), PLACE)
    cluster.create(cluster.kind("Controller"), {"metadata": {"name": "one"}, "spec": key}, PLACE)
    reference = {"controllerRef": {"name": "one"}}
    cluster.create(cluster.kind("RestApi"), {"metadata": {"name": "rest"}, "spec": reference}, PLACE)
    states = [["RUNNING"], ["PENDING"], ["RUNNING", "COMPLETING"], ["COMPLETED"]]
    jobs = [{"job_id": str(number), "state": state} for number, state in enumerate(states)]

    async def passed_on(path: str, headers: dict[str, str]) -> Answer:
        questions.append((path, headers.get("X-SLURM-USER-TOKEN", "")))
        return Answer(200, {}, json.dumps({"pings": [], "jobs": jobs, "errors": []}).encode())

    monkeypatch.setattr(client, "passed_on", passed_on)
    return questions


async def test_jobs_are_counted_by_state(client: Client, asked: list[tuple[str, str]]) -> None:
    assert await jobs_of(client, PLACE) == {"one": "2 running, 1 pending, 1 completing"}
    path, token = asked[-1]
    assert path.startswith(f"/api/v1/namespaces/{PLACE}/services/http:rest-restapi:6820/proxy/slurm/v0.0.")
    assert token.count(".") == 2


async def test_whom_nobody_can_ask_is_unknown(
    server: FakeApiServer, client: Client, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(path: str, headers: dict[str, str]) -> Answer:
        return Answer(503, {}, b'{"kind": "Status", "message": "no endpoints available"}')

    monkeypatch.setattr(client, "passed_on", refused)
    assert (await jobs_of(client, PLACE))["one"].startswith("unknown: ")
    cluster = server.cluster
    cluster.create(cluster.kind("Controller"), {"metadata": {"name": "lonely"}, "spec": {}}, PLACE)
    assert (await jobs_of(client, PLACE))["lonely"] == "unknown: no RestApi refers to it"
