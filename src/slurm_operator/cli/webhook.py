"""`slurm-operator webhook`: judges objects before they are stored. A process of its own, so that it never waits."""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from slurm_operator.admission.binding import PATH as BINDING_PATH
from slurm_operator.admission.binding import Binder
from slurm_operator.admission.certs import Pair, expiry
from slurm_operator.admission.certs_secret import KeySecret, inject
from slurm_operator.admission.certs_tls import ServingContext, has_pair, read_pair
from slurm_operator.admission.reviewer import Reviewer
from slurm_operator.admission.server import ReviewMetrics, serve_reviews
from slurm_operator.cli.types import Subparsers
from slurm_operator.cli.webhook_manifests import NAME
from slurm_operator.kube import ApiError, Client, load
from slurm_operator.kube.config import KubeConfig
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.health import metrics_page, no_blocked_loop, probe, serve
from slurm_operator.runtime.lag import LoopLag
from slurm_operator.runtime.logs import configure_logging
from slurm_operator.runtime.manager import on_signals
from slurm_operator.runtime.manager import run as run_loop
from slurm_operator.runtime.metrics import Metrics, RequestMetrics

log = logging.getLogger(__name__)

CERT_DIR: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where cert-manager's Secret is usually mounted
CALL_SECONDS: Final = 2.5
"""Deadline of calls to the API server, which itself waits for the verdict."""
RENEW_SECONDS: Final = 10.0
"""How often certificates are looked at."""
LEAVE_SECONDS: Final = 5.0
"""How long to go on serving after the signal to stop, until nobody sends requests here any more."""

Source: TypeAlias = Callable[[], Awaitable[Pair]]


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("webhook", help="run the admission webhook", description=__doc__.partition(": ")[2])
    parser.add_argument("--kubeconfig", default="", help="file to reach the cluster with; default: as kubectl")
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.add_argument(
        "--server-addr", default=":9443", metavar="ADDR", help="where reviews are received with TLS (default :9443)"
    )
    parser.add_argument(
        "--cert-dir",
        default="",
        metavar="DIR",
        help=f"use tls.crt and tls.key of this folder; without them in {CERT_DIR}: an own authority, kept in a Secret",
    )
    parser.add_argument(
        "--health-addr", default=":8081", metavar="ADDR", help="where /healthz and /readyz listen (default :8081)"
    )
    parser.add_argument(
        "--metrics-addr", default="0", metavar="ADDR", help='where /metrics listens, "0" for nowhere (default)'
    )
    parser.add_argument(
        "--namespaces", default="", metavar="NS,NS", help="judge only objects of these namespaces (default: all)"
    )
    parser.add_argument(
        "--service", default=NAME, help=f"Service and webhook configurations that lead here (default {NAME})"
    )
    parser.add_argument(
        "--log-level", "--zap-log-level", dest="log_level", default="info", choices=("debug", "info", "error")
    )
    # All replicas serve, and agree on certificates through the Secret: there is nothing to elect.
    parser.add_argument("--leader-elect", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--leader-elect-namespace", default="", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    configure_logging(options.log_level)
    config = load(options.kubeconfig, options.context)
    return run_loop(_run(options, config))


async def _run(options: argparse.Namespace, config: KubeConfig) -> int:
    stop = asyncio.Event()
    with on_signals(stop.set):
        await serve_webhook(options, config, stop)
    return 0


async def serve_webhook(options: argparse.Namespace, config: KubeConfig, stop: asyncio.Event) -> None:
    """Until `stop` is set, and for as long after it as others may need to notice."""
    metrics, requests, reviews = Metrics(), RequestMetrics(config.server), ReviewMetrics()
    metrics.registry.register(requests)
    metrics.registry.register(reviews)
    ready, lag, serving = asyncio.Event(), LoopLag(), ServingContext()
    alive = no_blocked_loop(lag)
    pages = {options.health_addr: {"/healthz": probe([alive]), "/readyz": probe([partial(_unready, ready, stop)])}}
    pages.setdefault(options.metrics_addr, {})["/metrics"] = metrics_page(metrics.render)
    async with Client(config, observer=requests.observe, deadline=CALL_SECONDS) as client, serve(pages):
        source = _source(options, config, client)
        serving.use(await source())
        reviewer = Reviewer(client, [name for name in options.namespaces.split(",") if name])
        reviewer.rehearse()
        routes = reviewer.routes() | {BINDING_PATH: Binder(client).bound}
        background = Background()
        background.keep("certificates", partial(_renew, serving, source))
        background.keep("loop lag", lag.run)
        async with serve_reviews(options.server_addr, routes, serving, reviews) as url, _running(background):
            ready.set()
            log.info("serving", extra={"url": url})
            await stop.wait()
            await asyncio.sleep(LEAVE_SECONDS)


def _unready(ready: asyncio.Event, stop: asyncio.Event) -> str | None:
    if stop.is_set():
        return "stopping"
    return None if ready.is_set() else "not listening yet"


def _source(options: argparse.Namespace, config: KubeConfig, client: Client) -> Source:
    """Where certificates come from: files that somebody else renews, or our own authority."""
    folder = Path(options.cert_dir or CERT_DIR)
    if options.cert_dir or has_pair(folder):
        return partial(asyncio.to_thread, read_pair, folder)
    namespace = options.leader_elect_namespace or config.namespace
    service = f"{options.service}.{namespace}"
    # The last one is for people who look at it through `kubectl port-forward`.
    names = [f"{service}.svc", service, f"{service}.svc.cluster.local", options.service, "localhost"]
    secret = KeySecret(client, namespace, names)
    return partial(_own, secret, options.service)


async def _own(secret: KeySecret, configurations: str) -> Pair:
    keys = await secret.keys()
    try:
        # Before the new certificate is shown, so that whoever meets it trusts it.
        await inject(secret.client, configurations, keys.bundle)
    except ApiError as error:
        log.error("the API server was not told whom to trust: %s", error)
    return keys.leaf


async def _renew(serving: ServingContext, source: Source) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        pair = await source()
        if serving.use(pair):
            log.info("serving a new certificate", extra={"expires": str(expiry(pair.certificate))})


@asynccontextmanager
async def _running(background: Background) -> AsyncIterator[None]:
    task = asyncio.create_task(background.run(), name="background")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
