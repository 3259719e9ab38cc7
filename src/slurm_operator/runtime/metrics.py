"""Prometheus metrics under the names of client-go and controller-runtime, so that existing dashboards fit.

Nothing is counted here but requests: queues and controllers keep plain numbers, read when somebody scrapes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_operator.kube.lease import Elector
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.lag import LoopLag
from slurm_operator.runtime.stats import Histogram

_REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Metrics:
    """One registry per process; further collectors may be registered with it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self) -> bytes:
        return generate_latest(self.registry)


class RequestMetrics(Collector):
    """Requests to the API server; `observe` is the client's observer."""

    def __init__(self, server: str) -> None:
        self._host = urlsplit(server).netloc
        self._requests: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def observe(self, method: str, code: str, seconds: float) -> None:
        self._requests[method, code] += 1
        histogram = self._seconds.get(method)
        if histogram is None:
            histogram = self._seconds[method] = Histogram(_REQUEST_SECONDS)
        histogram.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        yield _counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
            (((code, method, self._host), count) for (method, code), count in self._requests.items()),
        )
        yield _histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            (((method, self._host), histogram) for method, histogram in self._seconds.items()),
        )


class Exchange(Protocol):
    """One request to slurmrestd and what came back."""

    @property
    def call(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def size(self) -> int: ...


class _ClusterRequests:
    """Requests to one slurmrestd by call."""

    __slots__ = ("bytes", "requests", "seconds")

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[str] = Counter()
        self.seconds: dict[str, Histogram] = {}

    def observe(self, exchange: Exchange) -> None:
        call = exchange.call
        self.requests[call, exchange.outcome] += 1
        self.bytes[call] += exchange.size
        histogram = self.seconds.get(call)
        if histogram is None:
            histogram = self.seconds[call] = Histogram(_REQUEST_SECONDS)
        histogram.observe(exchange.seconds)


class SlurmMetrics(Collector):
    """Requests to the slurmrestd of each cluster; `observe` is what the views tell of them."""

    def __init__(self) -> None:
        self._clusters: dict[Key, _ClusterRequests] = {}

    def observe(self, cluster: Key, exchange: Exchange) -> None:
        requests = self._clusters.get(cluster)
        if requests is None:
            requests = self._clusters[cluster] = _ClusterRequests()
        requests.observe(exchange)

    def forget(self, cluster: Key) -> None:
        """Drop the numbers of a cluster that is not watched any more."""
        self._clusters.pop(cluster, None)

    def collect(self) -> Iterator[Metric]:
        each = [("/".join(cluster), requests) for cluster, requests in self._clusters.items()]
        yield _counter(
            "slurm_operator_slurm_requests_total",
            "Requests to a cluster's slurmrestd by call and outcome: the HTTP status, or the kind of failure",
            ("cluster", "call", "outcome"),
            [((name, *of), count) for name, found in each for of, count in found.requests.items()],
        )
        yield _counter(
            "slurm_operator_slurm_response_bytes_total",
            "Bytes that a cluster's slurmrestd has answered",
            ("cluster", "call"),
            [((name, call), count) for name, found in each for call, count in found.bytes.items()],
        )
        yield _histogram(
            "slurm_operator_slurm_request_duration_seconds",
            "How long a cluster's slurmrestd takes to answer",
            ("cluster", "call"),
            [((name, call), histogram) for name, found in each for call, histogram in found.seconds.items()],
        )


class ControllerMetrics(Collector):
    """Queues and controllers."""

    def __init__(self, controllers: Iterable[Controller]) -> None:
        self._controllers = tuple(controllers)

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._reconciles()

    def _queues(self) -> Iterator[Metric]:
        labels = ("name", "controller")
        each = [((found.name, found.name), found.queue) for found in self._controllers]
        ages = [(name, list(queue.in_hand().values())) for name, queue in each]
        yield _gauge(
            "workqueue_depth", "Current depth of workqueue", labels, [(name, queue.depth) for name, queue in each]
        )
        yield _gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
            labels,
            [(name, sum(seconds)) for name, seconds in ages],
        )
        yield _gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            labels,
            [(name, max(seconds, default=0.0)) for name, seconds in ages],
        )
        yield _counter(
            "workqueue_adds_total",
            "Total number of adds handled by workqueue",
            labels,
            [(name, queue.stats.adds) for name, queue in each],
        )
        yield _counter(
            "workqueue_retries_total",
            "Total number of retries handled by workqueue",
            labels,
            [(name, queue.stats.retries) for name, queue in each],
        )
        yield _histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            labels,
            [(name, queue.stats.waited) for name, queue in each],
        )
        yield _histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            labels,
            [(name, queue.stats.worked) for name, queue in each],
        )

    def _reconciles(self) -> Iterator[Metric]:
        labels = ("controller",)
        each = [((found.name,), found) for found in self._controllers]
        yield _counter(
            "controller_runtime_reconcile_total",
            "Total number of reconciliations per controller",
            ("controller", "result"),
            [((*name, result), count) for name, found in each for result, count in found.stats.results.items()],
        )
        yield _counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            labels,
            [(name, found.stats.results["error"]) for name, found in each],
        )
        yield _counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
            labels,
            [(name, found.stats.terminal) for name, found in each],
        )
        yield _counter(
            "controller_runtime_reconcile_timeouts_total",
            "Total number of reconciliations that exceeded their deadline per controller",
            labels,
            [(name, found.stats.timeouts) for name, found in each],
        )
        yield _histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            labels,
            [(name, found.stats.seconds) for name, found in each],
        )
        yield _gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            labels,
            [(name, found.stats.active) for name, found in each],
        )
        yield _gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            labels,
            [(name, found.workers) for name, found in each],
        )


class ProcessMetrics(Collector):
    """The process as a whole: who leads, how fresh its view is, how late its loop runs."""

    def __init__(
        self,
        caches: Caches,
        elector: Elector | None,
        lag: LoopLag,
        background: Background,
        clock: Clock | None = None,
    ) -> None:
        self._caches = caches
        self._elector = elector
        self._lag = lag
        self._background = background
        self._clock = clock or SystemClock()

    def collect(self) -> Iterator[Metric]:
        if self._elector is not None:
            leading = float(self._elector.leading.is_set())
            yield _gauge(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates "
                "master. 'name' is the string used to identify the lease.",
                ("name",),
                [((self._elector.name,), leading)],
            )
        now = self._clock.monotonic()
        silent: dict[tuple[str], float] = {}
        for reflector in self._caches.reflectors:
            label = (reflector.resource.label,)
            silent[label] = max(silent.get(label, 0.0), now - reflector.last_contact)
        yield _gauge(
            "slurm_operator_watch_silent_seconds",
            "Time since the API server was last heard on a watch of the resource",
            ("resource",),
            silent.items(),
        )
        yield _histogram(
            "slurm_operator_event_loop_lag_seconds",
            "How much later than asked for the event loop wakes a task",
            (),
            [((), self._lag.seconds)],
        )
        yield _counter(
            "slurm_operator_background_restarts_total",
            "How often a background task failed and was started again",
            ("task",),
            [((name,), count) for name, count in self._background.restarts.items()],
        )


_Rows = Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: _Rows) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], rows: _Rows) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _histogram(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, histogram.cumulative(), sum_value=histogram.total)
    return family
