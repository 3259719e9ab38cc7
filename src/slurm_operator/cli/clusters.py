"""Nodes and jobs of Slurm clusters by state: asked of Slurm, or else as they were last reported."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slurm_operator.api import Controller, NodeSet, RestApi, names
from slurm_operator.cli.jobs import slurm_of
from slurm_operator.cluster import choose_restapi
from slurm_operator.kube import ApiError, Client
from slurm_operator.kube.custom import CONTROLLERS, NODESETS, RESTAPIS
from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.model import Node
from slurm_operator.slurm.states import is_busy, is_down, is_drain, is_drained

NODE_STATES = ("idle", "allocated", "draining", "drained", "down", "other")
_JOB_STATES = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is known of the Slurm cluster of one Controller."""

    namespace: str
    name: str
    nodes: Mapping[str, int]
    """Each node in one state."""
    jobs: Mapping[str, int] = field(default_factory=dict)
    """Empty also if Slurm did not answer."""
    unknown: str = ""
    """Why Slurm could not be asked: the nodes are then as the operator last reported them."""
    silent_seconds: float | None = None
    """For how long the operator has had no answer from Slurm either; None if it has one, or does not say."""


async def clusters_of(client: Client, namespace: str | None) -> list[Cluster]:
    """Return every cluster of a namespace, or of all namespaces."""
    controllers = (await client.list(CONTROLLERS, namespace)).items
    restapis = (await client.list(RESTAPIS, namespace)).items
    found = [await _asked(client, controller, restapis) for controller in controllers]
    return await _with_reports(client, namespace, found) if any(cluster.unknown for cluster in found) else found


async def _asked(client: Client, controller: Controller, restapis: Iterable[RestApi]) -> Cluster:
    meta = controller.metadata
    mine = choose_restapi(found for found in restapis if _cluster_of(found) == (meta.namespace, meta.name))
    if mine is None:
        return Cluster(meta.namespace, meta.name, {}, unknown="no RestApi refers to it")
    nodes: list[Node] = []
    try:
        async with slurm_of(client, controller, mine) as slurm:
            await slurm.nodes(nodes.extend)
            jobs = Counter(word for job in await slurm.job_states() for word in job.state if word in _JOB_STATES)
    except (ApiError, SlurmError) as error:
        return Cluster(meta.namespace, meta.name, {}, unknown=str(error))
    shown = {state.lower(): jobs[state] for state in _JOB_STATES}
    return Cluster(meta.namespace, meta.name, _counted(node.state for node in nodes), shown)


async def _with_reports(client: Client, namespace: str | None, found: Iterable[Cluster]) -> list[Cluster]:
    """Fill in what worker pods and NodeSets say of clusters that did not answer."""
    pods: dict[Key, list[Pod]] = defaultdict(list)
    for pod in (await client.list(PODS, namespace, labels=f"{names.LABEL_APP}={names.APP_SLURMD}")).items:
        pods[pod.metadata.namespace, pod.metadata.labels.get(names.LABEL_CLUSTER, "")].append(pod)
    nodesets: dict[Key, list[NodeSet]] = defaultdict(list)
    for nodeset in (await client.list(NODESETS, namespace)).items:
        nodesets[_cluster_of(nodeset)].append(nodeset)

    def reported(cluster: Cluster) -> Cluster:
        key = cluster.namespace, cluster.name
        nodes = _counted(state for pod in pods[key] if (state := _reported(pod)))
        return replace(cluster, nodes=nodes, silent_seconds=_silent_seconds(nodesets[key], time.time()))

    return [reported(cluster) if cluster.unknown else cluster for cluster in found]


def _cluster_of(obj: RestApi | NodeSet) -> Key:
    return obj.metadata.namespace, obj.spec.controller_ref.name


def _reported(pod: Pod) -> tuple[str, ...]:
    """Return the state of a worker's Slurm node as its conditions last gave it, in Slurm's words."""
    prefix = names.POD_CONDITION_PREFIX
    held = (c.type for c in pod.status.conditions if c.is_true and c.type.startswith(prefix))
    return tuple(name.removeprefix(prefix).upper() for name in held)


def _silent_seconds(nodesets: Iterable[NodeSet], now: float) -> float | None:
    reports = [nodeset.status.condition(names.CONDITION_SLURM_REACHABLE) for nodeset in nodesets]
    since = [
        seconds_of(report.last_transition_time, absent=now)
        for report in reports
        if report is not None and not report.is_true
    ]
    return max(0.0, now - min(since)) if since else None


def _counted(states: Iterable[Collection[str]]) -> dict[str, int]:
    counts = Counter(map(_state, states))
    return {state: counts[state] for state in NODE_STATES}


def _state(words: Collection[str]) -> str:
    """Return the one state that a node is counted under: what keeps jobs away comes first."""
    if is_down(words):
        return "down"
    if is_drain(words):
        return "drained" if is_drained(words) else "draining"
    if is_busy(words):
        return "allocated"
    return "idle" if "IDLE" in words else "other"
