"""How a world comes to rest, and what must hold then. What administrators decided is not lifted for it."""

from collections.abc import Iterator

from slurm_operator.api import names
from slurm_operator.desired.revision import revision_data, revision_hash
from slurm_operator.kube.kinds import NODES, Pod
from slurm_operator.nodeset.choose import YES
from slurm_operator.nodeset.drains import REMOVAL
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.reasons import is_ours
from tests.simulation.worlds import events
from tests.simulation.worlds.history import History
from tests.simulation.worlds.rules import Rule, RuleBrokenError

STEPS = 240
"""Steps in which every world comes to rest: 40 minutes."""
QUIET_STEPS = 40
"""Steps without a write after which a world is at rest: longer than any timer of the operator."""


async def settle(history: History, *, jobs_end: bool = True, quiet_steps: int = QUIET_STEPS) -> None:
    """Faults are over and jobs end; what administrators decided stays."""
    history.story.append("        faults are over")
    history.chance.faults, history.chance.meanwhile = 0.0, lambda: None
    history.kube.lagging = False
    history.kube.catch_up()
    events.slurm_back(history)
    events.node_comes(history)
    events.administrator_continues(history)
    if jobs_end:
        history.slurm.jobs.clear()
    quiet = 0
    for _ in range(STEPS):
        before = len(history.writes)
        history.view.read()
        await history.operate()
        history.pass_time()
        quiet = quiet + 1 if len(history.writes) == before else 0
        if quiet >= quiet_steps:
            return
    last = "\n".join(history.writes[-8:])
    raise RuleBrokenError(Rule.REST_IS_QUIET, f"still writing after {STEPS} steps:\n{last}")


def check_arrived(history: History) -> None:
    """Rules 2 and 5."""
    for what in broken_decisions(history):
        raise RuleBrokenError(Rule.ADMINISTRATORS_DECIDE, what)
    for what in missing(history):
        raise RuleBrokenError(Rule.ALWAYS_ARRIVES, what)


async def check_quiet(history: History) -> None:
    """Rules 5 and 4: a pass that nothing asked for has nothing to do, and a new process writes nothing either."""
    before = len(history.writes)
    await _look_again(history)
    if len(history.writes) > before:
        raise RuleBrokenError(Rule.ALWAYS_ARRIVES, f"left to do, without a timer: {history.writes[before:]}")
    history.start_operator()
    await _look_again(history)
    if len(history.writes) > before:
        raise RuleBrokenError(Rule.REST_IS_QUIET, f"written after a restart at rest: {history.writes[before:]}")


async def _look_again(history: History) -> None:
    for _ in range(3):
        history.process.changed.add(history.key[0])
        await history.operate()
        history.view.read()


def broken_decisions(history: History) -> Iterator[str]:
    for name, said in history.decisions.items():
        record = history.slurm.records.get(name)
        if record is None:
            yield f"the record of {name} is gone, which an administrator had claimed: {said.reason!r}"
        elif not record.reason.startswith(said.reason) or not (record.drain if said.drain else record.down):
            yield f"an administrator said {said} of {name}, now it is {record}"


def missing(history: History) -> Iterator[str]:
    """What is not as it should be, with everything that administrators decided taken into account."""
    if history.exists and history.nodeset.metadata.deletion_timestamp is not None:
        if not _reserved(history):
            yield "the deleted NodeSet is still there"
        return
    pods = history.machines.pods()
    wanted = _wanted(history)
    surplus = sum(_mode(pod) != history.nodeset.spec.scaling_mode for pod in pods) if history.exists else 0
    if len(pods) != wanted and not (len(pods) - wanted == surplus and _is_held_up(history)):
        yield f"{len(pods)} pods instead of {wanted}: {[pod.metadata.name for pod in pods]}"
    for pod in pods:
        if what := _fault_of(history, pod):
            yield f"{pod.metadata.name}: {what}"
    workers = {pod.spec.hostname for pod in pods}
    for name, record in history.slurm.records.items():
        kept = record.claimed or name in _reserved(history) or name in history.slurm.revived
        # The record of a worker that failed, or was deleted by hand, and is not wanted again may stay DOWN.
        unwanted = record.down and name in history.machines.ended_by_others
        if name not in workers and not kept and not unwanted:
            yield f"record {name} is left without a worker: {record}"


def _wanted(history: History) -> int:
    if not history.exists:
        return 0
    spec = history.nodeset.spec
    return spec.replicas if spec.scaling_mode == "StatefulSet" else len(history.machines.nodes())


def _reserved(history: History) -> set[str]:
    return {name for nodes in history.slurm.reservations.values() for name in nodes}


def _fault_of(history: History, pod: Pod) -> str:
    name, record = pod.spec.hostname, history.slurm.records.get(pod.spec.hostname)
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted for ever"
    if pod.status.phase != "Running":
        return "" if _nowhere_to_run(history) else f"is {pod.status.phase}"
    if record is None and name in history.deleted_records:
        ready = history.nodeset.status.condition(names.CONDITION_READY)
        return "" if ready is not None and ready.status == "False" else "is not registered, and the report says nothing"
    if record is None or record.address != pod.status.pod_ip:
        return f"is not registered: {record}"
    if record.claimed:
        return ""
    node = history.kube.all(NODES)["", pod.spec.node_name]
    cordoned = node.spec.unschedulable or pod.metadata.annotations.get(names.ANNOTATION_POD_CORDON) in YES
    if cordoned:
        return "" if record.drain and is_ours(record.reason) else f"is cordoned and not drained: {record}"
    if not history.slurm.takes_jobs(name):
        return f"is out of service for no reason: {record}"
    old = pod.metadata.labels[names.LABEL_REVISION_HASH] != _revision(history)
    return "is of an old revision" if old and name not in _reserved(history) and not _is_held_up(history) else ""


def _mode(pod: Pod) -> str:
    return pod.metadata.labels[names.LABEL_SCALING_MODE]


def _is_held_up(history: History) -> bool:
    """Whether administrators keep so many workers away that an update may take none of the others."""
    limit = history.nodeset.spec.update_strategy.rolling_update.limit(_wanted(history))
    serving = [pod for pod in history.machines.pods() if history.slurm.serves(pod.spec.hostname, pod.status.pod_ip)]
    return _wanted(history) - len(serving) >= limit


def _revision(history: History) -> str:
    return revision_hash(revision_data(history.nodeset))


def _nowhere_to_run(history: History) -> bool:
    taken = {pod.spec.node_name for pod in history.machines.pods()}
    free = [n for n in history.machines.nodes() if not n.spec.unschedulable and n.metadata.name not in taken]
    return not free


def check_patience(history: History) -> None:
    """Rule 7, with jobs that never end: they are waited for, the report says so, and everything else is done."""
    if not history.exists:
        if any(history.slurm.jobs_on(pod.spec.hostname) for pod in history.machines.pods()):
            raise RuleBrokenError(Rule.DEADLINES_KILL_NOTHING, "the NodeSet is gone, its workers are busy")
        return
    going = {name: cause for cause, name in _going(history)}
    for pod in history.machines.pods():
        name = pod.spec.hostname
        if pod.status.phase != "Running" and _nowhere_to_run(history):
            continue  # It takes the place of a busy worker; what became of its predecessor stays in the status.
        if name in going and not history.slurm.needed_by(name) and not _is_claimed(history, name):
            raise RuleBrokenError(Rule.DEADLINES_KILL_NOTHING, f"{name} is free and should be gone ({going[name]})")
    busy = [name for name in going if history.slurm.jobs_on(name)]
    said = history.nodeset.status.condition(names.CONDITION_PROGRESSING)
    if busy and (said is None or said.status != "True" or "waiting for" not in said.message):
        raise RuleBrokenError(Rule.DEADLINES_KILL_NOTHING, f"{busy} are waited for, the report says {said}")


def _is_claimed(history: History, name: str) -> bool:
    return name in history.slurm.records and history.slurm.records[name].claimed


def _going(history: History) -> Iterator[tuple[str, str]]:
    """Workers that the operator has written down as going."""
    for drain in history.nodeset.status.drains:
        if drain.cause in REMOVAL:
            for name in members(drain.nodes):
                yield drain.cause, name
