"""The webhook's HTTPS server: each path has its handler, every request gets an answer."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_operator.admission.certs_tls import ServingContext
from slurm_operator.admission.review import Handler, answer
from slurm_operator.runtime.health import Page, listen
from slurm_operator.runtime.stats import RECONCILE_SECONDS, Histogram

BODY_LIMIT: Final = 16 * 2**20
"""A review holds the object twice, and an object may have almost 2 MB."""
KEEPALIVE_SECONDS: Final = 180.0
"""Longer than the API server keeps an idle connection, so that it is never closed just as a request is sent."""
STOP_SECONDS: Final = 10.0


class ReviewMetrics(Collector):
    """Under the names of controller-runtime, so that existing dashboards fit."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def observe(self, path: str, code: int, seconds: float) -> None:
        self._requests[path, str(code)] += 1
        if path not in self._seconds:
            self._seconds[path] = Histogram(RECONCILE_SECONDS)
        self._seconds[path].observe(seconds)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            labels=("webhook", "code"),
        )
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        yield requests
        latency = HistogramMetricFamily(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            labels=("webhook",),
        )
        for path, histogram in self._seconds.items():
            latency.add_metric((path,), histogram.cumulative(), sum_value=histogram.total)
        yield latency


@asynccontextmanager
async def serve_reviews(
    address: str, routes: Mapping[str, Handler], serving: ServingContext, metrics: ReviewMetrics | None = None
) -> AsyncIterator[str]:
    """Listens from entering to leaving; requests under way are answered before it ends. Yields the URL."""
    app = web.Application(client_max_size=BODY_LIMIT)
    seen = metrics or ReviewMetrics()
    app.add_routes([web.post(path, _page(path, handle, seen)) for path, handle in routes.items()])
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=STOP_SECONDS,
    )
    try:
        yield await listen(runner, address, serving.context)
    finally:
        await runner.cleanup()


def _page(path: str, handle: Handler, metrics: ReviewMetrics) -> Page:
    async def page(request: web.Request) -> web.Response:
        began = time.perf_counter()
        found = await answer(await request.read(), handle)
        metrics.observe(path, found.status, time.perf_counter() - began)
        return web.Response(status=found.status, body=found.body, content_type=found.media_type)

    return page
