"""Which NodeSets may lose their finalizer: those whose workers run no jobs, as far as Slurm and the pods can say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_operator.api import names
from slurm_operator.cli.jobs import Occupancy, occupancy
from slurm_operator.errors import UserError
from slurm_operator.kube import ApiError, Client
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CONTROLLER_REVISIONS, PODS, Pod
from slurm_operator.kube.model import Model, ObjectMeta
from slurm_operator.kube.resource import Resource
from slurm_operator.nodeset.evidence import says_busy
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.hostlist import HostlistError, compress, expand
from slurm_operator.slurm.model import Job
from slurm_operator.slurm.states import is_busy

NAMED_JOBS = 10
"""Jobs that a refusal names for each NodeSet."""


class _Reference(Model):
    name: str = ""


class _Spec(Model):
    controller_ref: _Reference = _Reference()


class HeldNodeSet(Model):
    """A NodeSet reduced to what every version of it has: one that this program cannot read may run jobs too."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def held(self) -> bool:
        return names.FINALIZER_WORKERS in self.metadata.finalizers

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


_HELD = Resource(NODESETS.group, NODESETS.version, NODESETS.kind, NODESETS.plural, HeldNodeSet)


async def all_nodesets(client: Client, namespace: str | None = None) -> list[HeldNodeSet]:
    """Return the NodeSets of a namespace, or of all; none if the server does not know the kind."""
    try:
        found = await client.list(_HELD, namespace)
    except NotFound:
        return []
    if found.unreadable:
        raise UserError(f"a NodeSet cannot be read: {found.unreadable[0].error}")
    return found.items


async def leaves_workers(client: Client, nodeset: HeldNodeSet) -> bool:
    """Return whether it is deleted with `--cascade=orphan`, so that its workers are to run on without it.

    Once the garbage collector is done, only revisions without a controller tell.
    """
    meta = nodeset.metadata
    if not meta.terminating or names.FINALIZER_FOREGROUND in meta.finalizers:
        return False
    if names.FINALIZER_ORPHAN in meta.finalizers:
        return True
    labels = names.selector_text(names.APP_SLURMD, meta.name)
    found = await client.list(CONTROLLER_REVISIONS, meta.namespace, labels=labels)
    return any(revision.metadata.controller is None for revision in found.items)


async def release(client: Client, nodeset: HeldNodeSet) -> None:
    """Remove the finalizer that holds the NodeSet until its workers run no jobs."""
    finalizers = [name for name in nodeset.metadata.finalizers if name != names.FINALIZER_WORKERS]
    patch = {"metadata": {"finalizers": finalizers, "uid": nodeset.metadata.uid}}
    try:
        await client.patch(_HELD, nodeset.metadata.name, patch, nodeset.metadata.namespace)
    except NotFound:
        return  # its deletion has ended meanwhile


async def refuse_busy(client: Client, nodesets: Iterable[HeldNodeSet], hint: str) -> None:
    """Raise a UserError that names the jobs on the workers of these NodeSets, or why they are unknown."""
    slurm = _Slurm(client)
    lines = [
        f"  NodeSet {nodeset}: {finding}" for nodeset in nodesets for finding in await _findings(client, slurm, nodeset)
    ]
    if lines:
        raise UserError("\n".join(["worker pods would be removed that run jobs, or may run jobs:", *lines]), hint)


class _Slurm:
    """The clusters, each asked once; for one that cannot be asked there is the cause."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Occupancy | str] = {}

    async def of(self, nodeset: HeldNodeSet) -> Occupancy | str:
        key = nodeset.metadata.namespace, nodeset.spec.controller_ref.name
        if key not in self._known:
            try:
                self._known[key] = await occupancy(self._client, *key)
            except (ApiError, SlurmError) as error:
                self._known[key] = str(error)
        return self._known[key]


async def _findings(client: Client, slurm: _Slurm, nodeset: HeldNodeSet) -> list[str]:
    """Return why the workers may not go; nothing if they may."""
    labels = names.selector_text(names.APP_SLURMD, nodeset.metadata.name)
    found = await client.list(PODS, nodeset.metadata.namespace, labels=labels)
    findings = [f"pod {pod.metadata.name} cannot be read: {pod.error}" for pod in found.unreadable]
    pods = [pod for pod in found.items if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")]
    if not pods:
        return findings
    known = await slurm.of(nodeset)
    if isinstance(known, str):
        return [*findings, f"Slurm cannot be asked about the jobs on {compress(map(slurm_name, pods))}: {known}"]
    jobs = _running(known.jobs, {slurm_name(pod) for pod in pods})
    if not jobs and (busy := [pod.metadata.name for pod in pods if _is_busy(pod, known)]):
        jobs = [f"Slurm lists no jobs, but these workers are busy: {', '.join(busy)}"]
    return [*findings, *jobs]


def _is_busy(pod: Pod, known: Occupancy) -> bool:
    """Believe the node's state; without a record (a slurmctld that lost its state) what was last written on the pod."""
    state = known.states.get(slurm_name(pod))
    return is_busy(state) if state is not None else says_busy(pod)


def _running(jobs: Sequence[Job], workers: set[str]) -> list[str]:
    mine = [place for job in jobs if (place := _placed(job, workers)) is not None]
    shown = [f"job {at.job.job_id} of {at.job.user_name or at.job.user_id} on {at.nodes}" for at in mine[:NAMED_JOBS]]
    more = [f"and {len(mine) - NAMED_JOBS} more jobs"] if len(mine) > NAMED_JOBS else []
    return shown + more


@dataclass(frozen=True, slots=True)
class _Place:
    job: Job
    nodes: str


def _placed(job: Job, workers: set[str]) -> _Place | None:
    """Return where the job runs; a node list that cannot be read may contain any worker."""
    try:
        on = workers.intersection(expand(job.nodes))
    except HostlistError:
        return _Place(job, job.nodes)
    return _Place(job, compress(on)) if on else None
