"""`run`: the whole process against the in-memory API server, and how it finds slurmrestd."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from slurm_local.apiserver import free_ports
from slurm_operator.cli import parser
from slurm_operator.cli import run as command
from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.custom import RESTAPIS
from slurm_operator.kube.indexes import BY_INSTANCE, instance
from slurm_operator.kube.kinds import PODS, Pod, PodStatus
from slurm_operator.kube.lease import Elector
from slurm_operator.kube.model import ObjectMeta
from slurm_operator.runtime.caches import Caches
from slurm_operator.slurm.errors import NotLeading
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeSlurmrestd
from tests.unit.desired import examples

NAMES = {"app.kubernetes.io/name": "slurmrestd", "app.kubernetes.io/instance": "slurm"}


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not met():  # noqa: ASYNC110 - the process has no event for it
            await asyncio.sleep(0.02)


async def test_the_process_from_start_to_end(server: FakeApiServer) -> None:
    """Leads, is ready, knows its namespaces alone, and on SIGTERM ends with the lease given back."""
    health, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    words = ["--leader-elect", "--namespaces", "default, kube-system", f"--health-addr={health}"]
    options = parser().parse_args(["run", *words, f"--metrics-addr={metrics}", "--nodeset-workers=2"])
    task = asyncio.create_task(command._serve(options, KubeConfig(server.url, namespace="default")))
    try:
        await until(lambda: server.log("create", "leases"))
        async with aiohttp.ClientSession() as session, session.get(f"http://{health}/readyz") as answer:
            assert answer.status == 200
        async with aiohttp.ClientSession() as session, session.get(f"http://{metrics}/metrics") as answer:
            page = await answer.text()
            assert "rest_client_requests_total{" in page
            assert "slurm_operator_slurm_requests_total" in page
        assert {line.namespace for line in server.log("watch", "controllers")} == {"default", "kube-system"}
        assert {line.namespace for line in server.log("watch", "nodes")} == {""}
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(task, 10) == 0
    lease = server.cluster.get(server.cluster.kind("Lease"), command.LEASE, "default")
    assert not lease["spec"].get("holderIdentity")


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[SlurmViews]:
    """The views that processes make."""
    made: list[SlurmViews] = []

    class Views(SlurmViews):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(command, "SlurmViews", Views)
    return made


async def test_the_numbers_of_a_removed_cluster_leave_the_page(server: FakeApiServer, views: list[SlurmViews]) -> None:
    (port,) = free_ports(1)
    address, cluster = f"127.0.0.1:{port}", ("default", "gone")
    options = parser().parse_args(["run", "--health-addr=0", f"--metrics-addr={address}"])

    async def numbers() -> list[str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
            return [line for line in (await answer.text()).splitlines() if 'cluster="default/gone"' in line]

    async with FakeSlurmrestd(FakeSlurm(time.time)) as slurm:
        task = asyncio.create_task(command._serve(options, KubeConfig(server.url, namespace="default")))
        try:
            await until(lambda: server.log("watch", "nodes"))
            view = views[0].set(cluster, slurm.url, KEY)
            await until(lambda: isinstance(view.state, Known))
            assert await numbers()
            await views[0].remove(cluster)
            assert await numbers() == []
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, 10) == 0


async def test_without_the_lease_nothing_is_written(
    server: FakeApiServer, client: Client, views: list[SlurmViews], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Elector] = []

    def may_write(elector: Elector) -> bool:
        asked.append(elector)
        return False

    monkeypatch.setattr(Elector, "may_write", may_write)
    spec = {"controllerRef": {"name": "absent"}, "slurmrestd": {"image": "i"}}
    await client.create(RESTAPIS, {"metadata": {"name": "r", "namespace": "default"}, "spec": spec})
    begun = len(server.writes)
    words = ["run", "--leader-elect", "--health-addr=0", "--metrics-addr=0"]
    options = parser().parse_args(words)
    slurm = FakeSlurm(time.time)
    slurm.add_nodes("w-0")
    async with FakeSlurmrestd(slurm) as slurmrestd:
        task = asyncio.create_task(command._serve(options, KubeConfig(server.url, namespace="default")))
        try:
            await until(lambda: asked)
            views[0].set(("default", "other"), slurmrestd.url, KEY)
            slurm_client = views[0].client(("default", "other"))
            assert slurm_client is not None
            with pytest.raises(NotLeading):
                await slurm_client.update_nodes(["w-0"], NodeUpdate(state=("DRAIN",), reason="ours"))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, 10) == 0
    assert "DRAIN" not in slurm.nodes["w-0"].flags
    assert {line.resource for line in server.writes[begun:]} == {"leases"}


def test_the_command_line_reaches_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def ran(work: object) -> int:
        seen.append(work)
        getattr(work, "close")()  # noqa: B009 - a coroutine that nobody awaits
        return 7

    monkeypatch.setattr(command, "load", lambda path, context: KubeConfig(f"https://{path}"))
    monkeypatch.setattr(command, "configure_logging", seen.append)
    monkeypatch.setattr(command, "run_loop", ran)
    options = parser().parse_args(["run", "--kubeconfig", "here", "--zap-log-level", "debug"])
    assert options.run(options) == 7
    assert seen[0] == "debug"


@pytest.mark.parametrize(("flags", "warned"), [(["--slurmclient-workers=2"], True), ([], False)])
def test_a_flag_without_effect_is_accepted_with_a_warning(
    flags: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ran(work: object) -> int:
        getattr(work, "close")()  # noqa: B009 - a coroutine that is never awaited
        return 0

    monkeypatch.setattr(command, "load", lambda path, context: KubeConfig("https://here"))
    monkeypatch.setattr(command, "configure_logging", lambda level: None)
    monkeypatch.setattr(command, "run_loop", ran)
    options = parser().parse_args(["run", *flags])
    assert options.run(options) == 0
    assert ("--slurmclient-workers has no effect" in caplog.text) is warned


def pod(name: str, ip: str, *, terminating: bool = False) -> Pod:
    gone = "2027-01-15T08:00:00Z" if terminating else None
    meta = ObjectMeta(name=name, namespace="slurm", labels=NAMES, resource_version="1", deletion_timestamp=gone)
    return Pod(metadata=meta, status=PodStatus(pod_ip=ip))


async def test_where_slurmrestd_is_found(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user says; in a pod by its Service; from outside at a pod's address, or by its Service after all."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    caches, restapi = Caches(client), examples.restapi()
    store = caches.follow(PODS, indexers={BY_INSTANCE: instance})
    by_name = "http://slurm-restapi.slurm:6820"
    assert command._locate(restapi, caches=caches, given={}) == by_name
    for found in (pod("a", "10.0.0.1", terminating=True), pod("b", ""), pod("c", "10.0.0.3")):
        store.upsert(found)
    assert command._locate(restapi, caches=caches, given={}) == "http://10.0.0.3:6820"
    assert command._locate(restapi, caches=caches, given={"slurm/slurm": "http://here"}) == "http://here"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr("slurm_operator.cli.run.Path.exists", lambda path: True)
    assert command._locate(restapi, caches=caches, given={}) == by_name


async def test_an_ipv6_address_is_written_as_urls_need_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    caches = Caches(client)
    caches.follow(PODS, indexers={BY_INSTANCE: instance}).upsert(pod("a", "fd00:10:244::1f"))
    assert command._locate(examples.restapi(), caches=caches, given={}) == "http://[fd00:10:244::1f]:6820"


def test_words_and_addresses() -> None:
    assert command._words(" a, b,,") == ("a", "b")
    assert command._urls(["slurm/a=http://x?y=z"]) == {"slurm/a": "http://x?y=z"}
    for wrong in ("slurm/a", "a=http://x/y"):
        with pytest.raises(UserError, match="NAMESPACE/CONTROLLER=URL"):
            command._urls([wrong])
    assert isinstance(command._resolv_conf(), str)


@pytest.mark.parametrize(("words", "seconds"), [([], 3600), (["--report-waiting-after", "90m"], 5400)])
async def test_after_how_long_jobs_that_are_waited_for_are_reported(
    words: list[str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made(Exception):  # noqa: N818 - ends the process where the operator would begin
        pass

    def made(*parts: object) -> None:
        raise Made(parts[-1])

    monkeypatch.setattr(command, "Operator", made)
    options = parser().parse_args(["run", *words])
    with pytest.raises(Made) as found:
        await command._serve(options, KubeConfig("http://127.0.0.1"))
    assert found.value.args[0].report_waiting_after == seconds


@pytest.mark.parametrize("text", ["soon", "-1h"])
def test_a_flag_that_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["run", f"--report-waiting-after={text}"])
    assert "--report-waiting-after" in capsys.readouterr().err
