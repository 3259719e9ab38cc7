"""What a Prometheus server reads."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import NODES, PODS
from slurm_operator.kube.lease import Elector
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.lag import LoopLag
from slurm_operator.runtime.metrics import ControllerMetrics, Metrics, ProcessMetrics, RequestMetrics, SlurmMetrics
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.stats import Histogram
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeTransport, killed, slow

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


async def test_queue_and_controller_under_the_names_that_dashboards_know(clock: FakeClock) -> None:
    queue = Queue("nodeset", clock=clock)

    async def reconcile(key: Key) -> Result:
        await clock.sleep(2)
        if key[1] == "bad":
            raise ValueError
        return Result(after=60)

    controller = Controller("nodeset", queue, reconcile, workers=2, clock=clock)
    metrics = Metrics()
    metrics.registry.register(ControllerMetrics([controller]))
    for name in ("a", "bad", "c"):
        queue.add(("ns", name))
    running = asyncio.create_task(controller.run())
    await clock.sleep(1)
    samples = scrape(metrics)
    work, of = (("controller", "nodeset"), ("name", "nodeset")), (("controller", "nodeset"),)
    assert samples["workqueue_depth", work] == 1
    assert samples["workqueue_adds_total", work] == 3
    assert samples["workqueue_unfinished_work_seconds", work] == 2
    assert samples["workqueue_longest_running_processor_seconds", work] == 1
    assert samples["controller_runtime_active_workers", of] == 2
    assert samples["controller_runtime_max_concurrent_reconciles", of] == 2

    await clock.sleep(2.5)
    samples = scrape(metrics)
    assert samples["workqueue_retries_total", work] == 1
    assert samples["workqueue_queue_duration_seconds_count", work] == 4
    assert samples["workqueue_work_duration_seconds_sum", work] == pytest.approx(4)
    assert samples["workqueue_work_duration_seconds_bucket", (*of, ("le", "1.0"), work[1])] == 0
    assert samples["workqueue_work_duration_seconds_bucket", (*of, ("le", "10.0"), work[1])] == 2
    assert samples["controller_runtime_reconcile_total", (*of, ("result", "requeue_after"))] == 1
    assert samples["controller_runtime_reconcile_total", (*of, ("result", "error"))] == 1
    assert samples["controller_runtime_reconcile_total", (*of, ("result", "success"))] == 0
    assert samples["controller_runtime_reconcile_errors_total", of] == 1
    assert samples["controller_runtime_terminal_reconcile_errors_total", of] == 0
    assert samples["controller_runtime_reconcile_timeouts_total", of] == 0
    assert samples["controller_runtime_reconcile_time_seconds_count", of] == 2
    assert samples["process_resident_memory_bytes", ()] > 0
    queue.shut_down()
    await running


async def test_requests_by_code_method_and_host(server: FakeApiServer) -> None:
    requests = RequestMetrics(server.url)
    async with Client(KubeConfig(server.url), observer=requests.observe) as client:
        await client.list(PODS)
        with pytest.raises(NotFound):
            await client.get(NODES, "nowhere")
    metrics = Metrics()
    metrics.registry.register(requests)
    samples = scrape(metrics)
    host = ("host", server.url.removeprefix("http://"))
    assert samples["rest_client_requests_total", (("code", "200"), host, ("method", "GET"))] == 1
    assert samples["rest_client_requests_total", (("code", "404"), host, ("method", "GET"))] == 1
    assert samples["rest_client_request_duration_seconds_count", (host, ("verb", "GET"))] == 2


async def test_requests_to_slurm_by_cluster_call_and_outcome(clock: FakeClock) -> None:
    slurm, requests, metrics = FakeSlurm(clock.now), SlurmMetrics(), Metrics()
    slurm.add_nodes("w-[0-4]")
    metrics.registry.register(requests)
    views = SlurmViews(clock, transport=lambda: FakeTransport(slurm), observe=requests.observe)
    view = views.set(("red", "slurm"), "http://slurm", KEY)
    await clock.sleep(10)
    await view.drain(["w-0", "w-1"], "slurm-operator: x")
    with slurm.failing(killed()):
        await clock.sleep(5)
    await views.close()
    samples = scrape(metrics)
    cluster, nodes = ("cluster", "red/slurm"), ("call", "GET nodes")
    of = {
        outcome: samples.get(("slurm_operator_slurm_requests_total", (nodes, cluster, ("outcome", outcome))), 0.0)
        for outcome in ("200", "304", "Unreachable")
    }
    assert of["200"] >= 1
    assert of["304"] > of["200"]
    assert of["Unreachable"] >= 1
    assert samples["slurm_operator_slurm_request_duration_seconds_count", (nodes, cluster)] == sum(of.values())
    assert samples["slurm_operator_slurm_response_bytes_total", (nodes, cluster)] > 0
    drains = (("call", "POST nodes"), cluster, ("outcome", "200"))
    assert samples["slurm_operator_slurm_requests_total", drains] == 1


async def test_a_removed_cluster_leaves_no_numbers_behind(clock: FakeClock) -> None:
    """Neither its past requests nor one that was under way when it was removed."""
    slurm, requests, metrics = FakeSlurm(clock.now), SlurmMetrics(), Metrics()
    slurm.add_nodes("w-[0-4]")
    metrics.registry.register(requests)
    views = SlurmViews(clock, transport=lambda: FakeTransport(slurm), observe=requests.observe, forget=requests.forget)
    views.set(("staying", "slurm"), "http://slurm", KEY)
    before = None
    for number in range(3):
        key = f"ci-{number}", "slurm"
        view = views.set(key, "http://slurm", KEY)
        await clock.sleep(10)
        slurm.fault = slow(3)
        late = asyncio.create_task(view.drain(["w-0"], "slurm-operator: x"))
        await clock.sleep(1)
        await views.remove(key)
        await late
        slurm.fault = None
        shown = {name for name, labels in scrape(metrics) if ("cluster", "/".join(key)) in labels}
        assert shown == set()
        lines = metrics.render().count(b"slurm_operator_slurm_")
        assert before in (None, lines)
        before = lines
    assert before
    views.set(("ci-0", "slurm"), "http://slurm", KEY)
    await clock.sleep(10)
    assert b'cluster="ci-0/slurm"' in metrics.render()
    await views.close()


class SlowToClose(FakeTransport):
    async def close(self) -> None:
        await asyncio.sleep(5)


async def test_a_cluster_that_returns_while_it_is_removed_keeps_its_new_numbers(clock: FakeClock) -> None:
    """Its connections may take long to close; what they still do counts for nobody."""
    slurm, requests, metrics = FakeSlurm(clock.now), SlurmMetrics(), Metrics()
    slurm.add_nodes("w-[0-4]")
    metrics.registry.register(requests)
    views = SlurmViews(clock, transport=lambda: SlowToClose(slurm), observe=requests.observe, forget=requests.forget)
    view = views.set(("red", "slurm"), "http://slurm", KEY)
    await clock.sleep(10)
    slurm.fault = slow(2)
    late = asyncio.create_task(view.drain(["w-0"], "slurm-operator: x"))
    await clock.sleep(1)
    slurm.fault = None
    removing = asyncio.create_task(views.remove(("red", "slurm")))
    await clock.sleep(0.1)
    views.set(("red", "slurm"), "http://slurm", KEY)
    await asyncio.gather(late, removing)
    shown = {dict(labels)["call"] for name, labels in scrape(metrics) if name == "slurm_operator_slurm_requests_total"}
    assert "GET nodes" in shown
    assert not [call for call in shown if call.startswith("POST")]
    await views.close()


async def test_leadership_watches_and_the_loop(client: Client, clock: FakeClock) -> None:
    caches, lag, background = Caches(client, clock=clock), LoopLag(clock=clock), Background(clock)
    caches.follow(PODS)
    elector = Elector(client, "default", "slurm-operator", "me", clock=clock)
    background.restarts["poller"] += 2
    lag.seconds.observe(0.02)
    metrics = Metrics()
    metrics.registry.register(ProcessMetrics(caches, elector, lag, background, clock))
    await clock.sleep(7)
    samples = scrape(metrics)
    assert samples["leader_election_master_status", (("name", "slurm-operator"),)] == 0
    assert samples["slurm_operator_watch_silent_seconds", (("resource", "pods"),)] == 7
    assert samples["slurm_operator_event_loop_lag_seconds_count", ()] == 1
    assert samples["slurm_operator_background_restarts_total", (("task", "poller"),)] == 2
    elector.leading.set()
    assert scrape(metrics)["leader_election_master_status", (("name", "slurm-operator"),)] == 1


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 102
