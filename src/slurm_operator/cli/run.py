"""`slurm-operator run`: the operator itself, in a pod or outside of the cluster."""

import argparse
import logging
import os
import socket
import uuid
from functools import partial
from pathlib import Path

from slurm_operator.api import RestApi, names
from slurm_operator.api.values import parse_duration
from slurm_operator.cli.types import Subparsers
from slurm_operator.cli.wiring import Operator, Settings
from slurm_operator.cluster import in_cluster
from slurm_operator.desired.dns import cluster_domain
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, Elector, load
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.indexes import BY_INSTANCE, instance_key
from slurm_operator.kube.kinds import PODS
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.logs import configure_logging
from slurm_operator.runtime.manager import Addresses, Manager
from slurm_operator.runtime.manager import run as run_loop
from slurm_operator.runtime.metrics import Metrics, RequestMetrics, SlurmMetrics
from slurm_operator.slurm.leading import LeadingTransport
from slurm_operator.slurm.transport import HttpTransport
from slurm_operator.slurm.views import SlurmViews

KINDS = ("accounting", "controller", "loginset", "nodeset", "restapi", "token")
LEASE = "slurm-operator"

log = logging.getLogger(__name__)


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("run", help="run the operator", description="Run the operator until it is stopped.")
    parser.add_argument(
        "--kubeconfig", default="", help="file to reach the cluster with; default: as kubectl, or the pod's own account"
    )
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.add_argument(
        "--health-addr", default=":8081", metavar="ADDR", help="where /healthz and /readyz listen (default :8081)"
    )
    parser.add_argument(
        "--metrics-addr",
        default=":8080",
        metavar="ADDR",
        help='where /metrics listens, "0" for nowhere (default :8080)',
    )
    parser.add_argument(
        "--leader-elect", action="store_true", help="work only while holding the lease, so that several may run"
    )
    parser.add_argument(
        "--leader-elect-namespace",
        default="",
        metavar="NS",
        help="namespace of the lease (default: the operator's own)",
    )
    parser.add_argument(
        "--namespaces", default="", metavar="NS,NS", help="look only into these namespaces (default: all)"
    )
    parser.add_argument(
        "--propagated-node-conditions",
        default="",
        metavar="TYPE,TYPE",
        help="Node conditions that become drain reasons",
    )
    parser.add_argument(
        "--report-waiting-after",
        type=_duration,
        default="1h",
        metavar="DURATION",
        help="report a job once a NodeSet has waited for it longer than this, as in 30m (default 1h)",
    )
    parser.add_argument(
        "--log-level", "--zap-log-level", dest="log_level", default="info", choices=("debug", "info", "error")
    )
    parser.add_argument(
        "--slurm-url",
        action="append",
        default=[],
        metavar="NS/CONTROLLER=URL",
        help="reach a cluster's slurmrestd here instead of through its Service",
    )
    for kind in KINDS:
        parser.add_argument(
            f"--{kind}-workers",
            type=int,
            default=4,
            metavar="N",
            help=argparse.SUPPRESS,
        )
    parser.add_argument("--slurmclient-workers", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    configure_logging(options.log_level)
    if options.slurmclient_workers is not None:
        log.warning("--slurmclient-workers has no effect: every Slurm cluster has a poller of its own; leave it out")
    config = load(options.kubeconfig, options.context)
    return run_loop(_serve(options, config))


async def _serve(options: argparse.Namespace, config: KubeConfig) -> int:
    clock, metrics, requests, slurm = SystemClock(), Metrics(), RequestMetrics(config.server), SlurmMetrics()
    metrics.registry.register(requests)
    metrics.registry.register(slurm)
    async with Client(config, observer=requests.observe, clock=clock) as client:
        caches = Caches(client, namespaces=_words(options.namespaces), clock=clock)
        views = SlurmViews(clock, transport=partial(_leading, client), observe=slurm.observe, forget=slurm.forget)
        settings = Settings(
            domain=cluster_domain(_resolv_conf()),
            propagated_conditions=_words(options.propagated_node_conditions),
            report_waiting_after=options.report_waiting_after,
            workers={kind: getattr(options, f"{kind}_workers") for kind in KINDS},
        )
        locate = partial(_locate, caches=caches, given=_urls(options.slurm_url))
        operator = Operator(client, caches, views, clock, locate, settings)
        background = Background(clock)
        background.keep("events", operator.recorder.run)
        elector = None
        if options.leader_elect:
            namespace = options.leader_elect_namespace or config.namespace or "default"
            identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
            elector = Elector(client, namespace, LEASE, identity, clock=clock)
            client.may_write = elector.may_write
        manager = Manager(
            caches,
            operator.controllers,
            elector=elector,
            background=background,
            metrics=metrics,
            addresses=Addresses(options.health_addr, options.metrics_addr),
            clock=clock,
        )
        try:
            return await manager.run()
        finally:
            await views.close()


def _leading(client: Client) -> LeadingTransport:
    return LeadingTransport(HttpTransport(), lambda: client.may_write())


def _locate(restapi: RestApi, *, caches: Caches, given: dict[str, str]) -> str:
    """By Service name within the cluster; from outside, where names do not resolve, at a pod's address."""
    key = f"{restapi.metadata.namespace}/{restapi.spec.controller_ref.name}"
    if key in given:
        return given[key]
    if "KUBERNETES_SERVICE_HOST" in os.environ and Path("/var/run/secrets/kubernetes.io").exists():
        return in_cluster(restapi)
    instance = instance_key(restapi.metadata.namespace, names.APP_SLURMRESTD, restapi.metadata.name)
    for pod in caches.store(PODS).by_index(BY_INSTANCE, instance):
        if pod.status.pod_ip and not pod.metadata.terminating:
            host = f"[{pod.status.pod_ip}]" if ":" in pod.status.pod_ip else pod.status.pod_ip
            return f"http://{host}:{names.PORT_SLURMRESTD}"
    return in_cluster(restapi)


def _resolv_conf() -> str:
    file = Path("/etc/resolv.conf")
    return file.read_text() if file.exists() else ""


def _duration(text: str) -> float:
    """Return the seconds of a duration that is not negative."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative; write for example 30m or 1h")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _urls(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair or "/" not in pair.partition("=")[0]:
            raise UserError(f"--slurm-url {pair!r} is not NAMESPACE/CONTROLLER=URL")
    return dict(pair.split("=", 1) for pair in pairs)
