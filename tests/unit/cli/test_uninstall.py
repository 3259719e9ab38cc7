"""`uninstall` and NodeSets: no worker that runs jobs is released, and a NodeSet that stays keeps its finalizer."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.cli import install as module
from slurm_operator.cli.install import install, uninstall
from slurm_operator.cli.keys import key_secret
from slurm_operator.cli.manifests import LABELS, NAME
from slurm_operator.cli.release import all_nodesets, release
from slurm_operator.errors import UserError
from slurm_operator.kube import ApiError
from slurm_operator.kube.client import Client
from slurm_operator.kube.transport import Answer
from tests.fakes.apiserver import FakeApiServer, Writer
from tests.unit.cli.conftest import Command

PLACE = "slurm-operator"
THEIRS = "example.com/theirs"
STATUS = Writer("kubernetes", subresource="status")


class World:
    """One cluster of two workers, of which the second may run a job."""

    def __init__(self, server: FakeApiServer) -> None:
        self.cluster = server.cluster
        self.jobs: list[dict[str, Any]] = []
        self.nodes = {"gpu-0": ["IDLE"], "gpu-1": ["IDLE"]}
        self.questions: list[str] = []
        self.broken = b""

    def make(self) -> None:
        self.create("Secret", key_secret("slurm-keys", "default"))
        key = {"jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}}
        self.create("Controller", {"metadata": {"name": "one"}, "spec": key})
        self.create("RestApi", {"metadata": {"name": "rest"}, "spec": {"controllerRef": {"name": "one"}}})
        meta = {"name": "gpu", "finalizers": [names.FINALIZER_WORKERS, THEIRS]}
        self.create("NodeSet", {"metadata": meta, "spec": {"controllerRef": {"name": "one"}}})
        for name in self.nodes:
            labels = names.selector(names.APP_SLURMD, "gpu")
            spec = {"nodeName": "node", "containers": [{"name": "slurmd", "image": "slurmd"}]}
            self.create("Pod", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def create(self, kind: str, manifest: dict[str, Any], namespace: str = "default") -> None:
        self.cluster.create(self.cluster.kind(kind), manifest, namespace)

    def delete(self, kind: str = "NodeSet", name: str = "gpu", namespace: str = "default") -> None:
        self.cluster.delete(self.cluster.kind(kind), name, namespace, {"gracePeriodSeconds": 0})

    def run_job(self) -> None:
        self.jobs = [
            {"job_id": 7, "job_state": ["COMPLETED"], "nodes": "gpu-0", "user_name": "bob"},
            {"job_id": 12, "job_state": ["RUNNING"], "nodes": "gpu-[1-2]", "user_name": "alice"},
            {"job_id": 13, "job_state": ["PENDING"], "nodes": "", "user_name": "bob"},
        ]

    def finalizers(self) -> list[str]:
        found: list[str] = self.cluster.get(self.cluster.kind("NodeSet"), "gpu", "default")["metadata"]["finalizers"]
        return found

    @property
    def installed(self) -> bool:
        return bool(self.cluster.list(self.cluster.kind("Deployment"), PLACE))

    async def answer(self, path: str, headers: dict[str, str]) -> Answer:
        self.questions.append(path)
        if self.broken:
            return Answer(503, {}, self.broken)
        nodes = [{"name": name, "state": state} for name, state in self.nodes.items()]
        last = {"set": True, "number": 1}
        body = {"pings": [], "nodes": nodes, "jobs": self.jobs, "errors": [], "last_update": last}
        return Answer(200, {}, json.dumps(body).encode())


@pytest.fixture
async def world(server: FakeApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(server)
    monkeypatch.setattr(Client, "passed_on", found.answer)
    established = asyncio.create_task(_establish(server))
    await install(client, PLACE)
    established.cancel()
    found.make()
    return found


async def _establish(server: FakeApiServer) -> None:
    cluster = server.cluster
    kind = cluster.kind("CustomResourceDefinition")
    made = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    while True:
        for crd in cluster.list(kind):
            cluster.patch(kind, crd["metadata"]["name"], "", made, writer=STATUS)
        await asyncio.sleep(0.02)


async def refused(client: Client, world: World, *words: str, crds: bool = False) -> None:
    with pytest.raises(UserError) as refusal:
        await uninstall(client, PLACE, crds=crds)
    for word in ("NodeSet default/gpu: ", *words):
        assert word in refusal.value.message
    assert "--force" in refusal.value.hint
    assert world.installed, "nothing was removed"
    assert world.finalizers() == [names.FINALIZER_WORKERS, THEIRS]


async def test_a_deleted_nodeset_whose_worker_runs_a_job_is_not_released(client: Client, world: World) -> None:
    world.run_job()
    world.delete()
    await refused(client, world, "job 12 of alice on gpu-1")
    world.jobs = []
    assert await uninstall(client, PLACE) == []
    assert world.finalizers() == [THEIRS]
    assert not world.installed


async def test_force_releases_what_runs_jobs(client: Client, world: World) -> None:
    world.run_job()
    world.delete()
    assert await uninstall(client, PLACE, force=True) == []
    assert world.finalizers() == [THEIRS]
    assert world.questions == [], "nobody is asked"


async def test_a_slurm_that_cannot_be_asked_counts_as_busy(client: Client, world: World) -> None:
    world.delete()
    world.broken = b'{"kind": "Status", "message": "no endpoints available"}'
    await refused(client, world, "Slurm cannot be asked about the jobs on gpu-[0-1]: ", "HTTP 503")
    world.broken = b""
    world.delete("RestApi", "rest")
    await refused(client, world, "no RestApi refers to it")
    world.delete("Controller", "one")
    await refused(client, world, "Slurm cannot be asked")
    for pod in ("gpu-0", "gpu-1"):
        world.delete("Pod", pod)
    await uninstall(client, PLACE)
    assert world.finalizers() == [THEIRS], "without a worker no job can be lost"


async def test_the_states_of_nodes_and_pods_count_too(client: Client, world: World) -> None:
    world.delete()
    world.nodes["gpu-0"] = ["IDLE", "COMPLETING"]
    await refused(client, world, "busy: gpu-0")
    world.nodes = {"gpu-0": ["IDLE"]}
    pod = world.cluster.kind("Pod")
    for name in ("gpu-0", "gpu-1"):
        label = {"metadata": {"labels": {names.LABEL_POD_PROTECT: "true"}}}
        world.cluster.patch(pod, name, "default", label, writer=Writer("operator"))
    await refused(client, world, "busy: gpu-1")
    world.cluster.patch(
        pod, "gpu-1", "default", {"metadata": {"labels": {names.LABEL_POD_PROTECT: None}}}, writer=Writer("operator")
    )
    condition = {"type": "SlurmNodeStateAllocated", "status": "True"}
    world.cluster.patch(pod, "gpu-1", "default", {"status": {"conditions": [condition]}}, writer=STATUS)
    await refused(client, world, "busy: gpu-1")


async def test_a_job_that_is_suspended_is_not_over(client: Client, world: World) -> None:
    """With CR_Core its node shows IDLE."""
    world.delete()
    world.jobs = [{"job_id": 5, "job_state": ["SUSPENDED"], "nodes": "gpu-0", "user_name": "bob"}]
    await refused(client, world, "job 5 of bob on gpu-0")


async def test_a_pod_that_cannot_be_read_may_run_jobs(client: Client, world: World) -> None:
    world.delete()
    pod = world.cluster.kind("Pod")
    world.cluster.patch(pod, "gpu-1", "default", {"status": {"message": 7}}, writer=STATUS)
    await refused(client, world, "pod gpu-1 cannot be read: ")


async def test_a_nodeset_of_another_version_may_run_jobs(client: Client, world: World) -> None:
    world.run_job()
    change = {"spec": {"replicas": "many"}}
    world.cluster.patch(world.cluster.kind("NodeSet"), "gpu", "default", change, writer=Writer("stranger"))
    world.delete()
    await refused(client, world, "job 12 of alice on gpu-1")


async def test_a_job_that_starts_before_the_operator_has_ended_counts(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(*_: object) -> None:
        world.run_job()

    monkeypatch.setattr(module, "_operator_ended", ended)
    world.delete()
    with pytest.raises(UserError, match="job 12 of alice on gpu-1"):
        await uninstall(client, PLACE)
    assert world.finalizers() == [names.FINALIZER_WORKERS, THEIRS]


async def test_a_nodeset_in_the_operators_own_namespace_goes_with_it(client: Client, world: World) -> None:
    meta = {"name": "own", "finalizers": [names.FINALIZER_WORKERS]}
    world.create("NodeSet", {"metadata": meta, "spec": {"controllerRef": {"name": "one"}}}, PLACE)
    spec = {"nodeName": "node", "containers": [{"name": "slurmd", "image": "slurmd"}]}
    labels = names.selector(names.APP_SLURMD, "own")
    world.create("Pod", {"metadata": {"name": "own-0", "labels": labels}, "spec": spec}, PLACE)
    with pytest.raises(UserError, match="NodeSet slurm-operator/own: Slurm cannot be asked about the jobs on own-0"):
        await uninstall(client, PLACE)
    assert world.installed
    world.delete("Pod", "own-0", PLACE)
    await uninstall(client, PLACE)
    assert world.cluster.list(world.cluster.kind("NodeSet"), PLACE) == []


async def test_a_nodeset_that_stays_keeps_its_finalizer(
    world: World, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run_job()
    assert await command("uninstall") == 0
    said = capsys.readouterr().out
    assert "default/gpu" in said
    assert "slurm-operator install" in said
    assert not world.installed
    assert world.finalizers() == [names.FINALIZER_WORKERS, THEIRS]
    assert await command("uninstall", "--force") == 0
    assert "default/gpu" not in capsys.readouterr().out
    assert world.finalizers() == [THEIRS]


async def test_definitions_do_not_go_while_jobs_run(client: Client, world: World) -> None:
    world.run_job()
    await refused(client, world, "job 12 of alice", crds=True)
    world.jobs = []
    await uninstall(client, PLACE, crds=True)
    assert world.finalizers() == [THEIRS]
    assert world.cluster.list(world.cluster.kind("CustomResourceDefinition")) == []


async def test_finalizers_go_only_after_the_operators_pods(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.delete()
    spec = {"nodeName": "node", "containers": [{"name": NAME, "image": NAME}]}
    world.create("Pod", {"metadata": {"name": "op", "labels": LABELS}, "spec": spec}, PLACE)
    monkeypatch.setattr(module, "GOODBYE_SECONDS", 0.2)
    with pytest.raises(UserError, match=r"pods of the operator did not end within 0\.2 s: op"):
        await uninstall(client, PLACE)
    assert world.finalizers() == [names.FINALIZER_WORKERS, THEIRS]
    assert capsys.readouterr().out == "waiting for the operator's pods to end\n"

    waiting = asyncio.Event()
    monkeypatch.setattr("builtins.print", lambda *_, **__: waiting.set())
    monkeypatch.setattr(module, "GOODBYE_SECONDS", 30.0)
    task = asyncio.create_task(uninstall(client, PLACE))
    await waiting.wait()
    world.delete("Pod", "op", PLACE)
    await task
    assert world.finalizers() == [THEIRS]


async def test_a_refusal_names_some_of_many_jobs(client: Client, world: World) -> None:
    world.jobs = [{"job_id": number, "job_state": ["RUNNING"], "nodes": "gpu-0"} for number in range(15)]
    world.jobs.append({"job_id": 99, "job_state": ["RUNNING"], "nodes": "gpu-[0"})
    world.delete()
    await refused(client, world, "job 9 of 0 on gpu-0", "and 6 more jobs")


async def test_a_successor_of_the_same_name_keeps_its_finalizer(client: Client, world: World) -> None:
    (seen,) = await all_nodesets(client)
    earlier = msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, uid="uid-earlier"))
    with pytest.raises(ApiError):
        await release(client, earlier)
    assert world.finalizers() == [names.FINALIZER_WORKERS, THEIRS]
