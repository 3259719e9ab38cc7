"""Nodes and jobs that `status` shows: asked through the API server, else as last reported, and never guessed."""

import json
import time
from typing import Any

import pytest

from slurm_operator.api import names
from slurm_operator.cli.clusters import Cluster, clusters_of
from slurm_operator.cli.keys import key_secret
from slurm_operator.cli.status import Glance
from slurm_operator.kube.client import Client
from slurm_operator.kube.transport import Answer
from slurm_operator.runtime.times import rfc3339
from tests.fakes.apiserver import FakeApiServer, Writer

PLACE = "default"
STATES = {
    "w-0": ["IDLE"],
    "w-1": ["IDLE", "DRAIN"],
    "w-2": ["MIXED", "DRAIN"],
    "w-3": ["ALLOCATED"],
    "w-4": ["DOWN", "DRAIN", "NOT_RESPONDING"],
    "w-5": ["IDLE", "COMPLETING"],
    "w-6": ["IDLE", "DRAIN", "UNDRAIN"],
    "w-7": ["UNKNOWN"],
}
COUNTS = {"idle": 2, "allocated": 2, "draining": 1, "drained": 1, "down": 1, "other": 1}
Questions = list[tuple[str, str]]


def create(server: FakeApiServer, kind: str, name: str, **parts: Any) -> None:
    metadata = {"name": name, "labels": parts.pop("labels", {})}
    server.cluster.create(server.cluster.kind(kind), {"metadata": metadata, "spec": {}, **parts}, PLACE)


@pytest.fixture
def asked(server: FakeApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> Questions:
    """A cluster with a slurmrestd behind the API server; what it was asked, and with whose token."""
    questions = Questions()
    server.cluster.create(server.cluster.kind("Secret"), key_secret("slurm-keys", PLACE), PLACE)
    create(server, "Controller", "one", spec={"jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}})
    create(server, "RestApi", "rest", spec={"controllerRef": {"name": "one"}})
    states = [["RUNNING"], ["PENDING"], ["RUNNING", "COMPLETING"], ["COMPLETED"]]
    jobs = [{"job_id": str(number), "state": state} for number, state in enumerate(states)]
    nodes = [{"name": name, "state": state} for name, state in STATES.items()]

    async def passed_on(path: str, headers: dict[str, str]) -> Answer:
        questions.append((path, headers.get("X-SLURM-USER-TOKEN", "")))
        body = {"pings": [], "jobs": jobs, "nodes": nodes, "last_update": {"set": True, "number": 1}, "errors": []}
        return Answer(200, {}, json.dumps(body).encode())

    monkeypatch.setattr(client, "passed_on", passed_on)
    return questions


async def _refused(path: str, headers: dict[str, str]) -> Answer:
    return Answer(503, {}, b'{"kind": "Status", "message": "no endpoints available"}')


async def test_nodes_and_jobs_are_counted_by_state(client: Client, asked: Questions) -> None:
    """A node counts once: one that is drained is not idle as well."""
    (found,) = await clusters_of(client, PLACE)
    jobs = {"running": 2, "pending": 1, "completing": 1, "suspended": 0}
    assert found == Cluster(PLACE, "one", COUNTS, jobs)
    assert sum(found.nodes.values()) == len(STATES)
    path, token = asked[-1]
    assert path.startswith(f"/api/v1/namespaces/{PLACE}/services/http:rest-restapi:6820/proxy/slurm/v0.0.")
    assert token.count(".") == 2
    assert Glance((), (found,)).table().splitlines()[-2:] == [
        "Slurm nodes of one: 2 idle, 2 allocated, 1 draining, 1 drained, 1 down, 1 other",
        "Jobs of one: 2 running, 1 pending, 1 completing",
    ]


def report(server: FakeApiServer, cluster: str, prefix: str, words: dict[str, list[str]]) -> None:
    """Give workers the conditions that the operator writes for these states."""
    spelled = {"NOT_RESPONDING": "NotResponding"}
    for name, state in words.items():
        pod = prefix + name
        labels = {names.LABEL_APP: names.APP_SLURMD, names.LABEL_CLUSTER: cluster}
        create(server, "Pod", pod, labels=labels, spec={"containers": [{"name": "slurmd", "image": "a"}]})
        conditions = [
            {"type": f"SlurmNodeState{spelled.get(word, word.capitalize())}", "status": "True"} for word in state
        ]
        writer = Writer("operator", subresource="status")
        server.cluster.patch(
            server.cluster.kind("Pod"), pod, PLACE, {"status": {"conditions": conditions}}, writer=writer
        )


def reachable(server: FakeApiServer, nodeset: str, cluster: str, status: str, seconds_ago: float) -> None:
    create(server, "NodeSet", nodeset, spec={"controllerRef": {"name": cluster}})
    since = rfc3339(time.time() - seconds_ago)
    condition = {"type": "SlurmReachable", "status": status, "reason": "R", "message": "", "lastTransitionTime": since}
    patch = {"status": {"conditions": [condition]}}
    writer = Writer("operator", subresource="status")
    server.cluster.patch(server.cluster.kind("NodeSet"), nodeset, PLACE, patch, writer=writer)


async def test_what_slurm_does_not_say_is_shown_as_it_was_and_marked(
    server: FakeApiServer, client: Client, asked: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of a cluster that does not answer are its own, with their age if the operator knows it."""
    monkeypatch.setattr(client, "passed_on", _refused)
    create(server, "Controller", "lonely")
    report(server, "one", "", STATES)
    report(server, "lonely", "other-", {"w-0": ["IDLE"], "new": []})
    reachable(server, "old", "one", "False", 600)
    reachable(server, "new", "one", "False", 60)
    reachable(server, "far", "lonely", "True", 60)
    lonely, one = sorted(await clusters_of(client, PLACE), key=lambda cluster: cluster.name)
    assert (one.nodes, one.jobs) == (COUNTS, {})
    assert one.unknown
    assert one.silent_seconds == pytest.approx(600, abs=5)
    assert (lonely.unknown, lonely.silent_seconds) == ("no RestApi refers to it", None)
    shown = Glance((), (one, lonely)).table()
    assert "Slurm nodes of one (stale: no answer for 10 min): 2 idle, 2 allocated" in shown
    assert "Slurm nodes of lonely (stale, age unknown): 1 idle\nJobs of lonely: unknown: no RestApi" in shown
