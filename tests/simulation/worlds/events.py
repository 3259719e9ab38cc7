"""Everything that may happen in a history beside the operator's own work, by name."""

from collections.abc import Callable

import msgspec

from slurm_operator.api import names
from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.nodeset.evidence import says_busy
from tests.simulation.worlds.history import NODES, Decision, History
from tests.simulation.worlds.machines import BAD_IMAGE
from tests.simulation.worlds.slurm import Record

Event = Callable[[History], None]


def _record(history: History) -> tuple[str, Record] | None:
    """Any node record."""
    found = sorted(history.slurm.records)
    name = history.rng.choice(found) if found else ""
    return (name, history.slurm.records[name]) if name else None


def _pod(history: History) -> Pod | None:
    found = sorted(history.machines.pods(), key=lambda pod: pod.metadata.name)
    return history.rng.choice(found) if found else None


# Users of Slurm


def job_starts(history: History) -> None:
    usable = sorted(name for name in history.slurm.records if history.slurm.takes_jobs(name))
    if usable:
        width = min(len(usable), history.rng.choice((1, 1, 1, 2)))
        history.slurm.submit(*history.rng.sample(usable, width))


def job_ends(history: History) -> None:
    running = sorted(number for number, job in history.slurm.jobs.items() if job.state != "COMPLETING")
    if running:
        number = history.rng.choice(running)
        job = history.slurm.jobs[number]
        if job.nodes:
            job.state = "COMPLETING"
        else:
            del history.slurm.jobs[number]


def job_names_a_node(history: History) -> None:
    if found := _record(history):
        history.slurm.submit_for(found[0])


# Administrators of Slurm


def administrator_suspends(history: History) -> None:
    for job in history.slurm.jobs.values():
        if job.state == "RUNNING" and history.rng.random() < 0.5:
            job.state = "SUSPENDED"


def administrator_continues(history: History) -> None:
    for job in history.slurm.jobs.values():
        if job.state == "SUSPENDED":
            job.state = "RUNNING"


def administrator_reserves(history: History) -> None:
    if found := _record(history):
        history.slurm.reservations[f"maintenance-{found[0]}"] = (found[0],)


def administrator_frees(history: History) -> None:
    history.slurm.reservations.clear()


def administrator_drains(history: History) -> None:
    if found := _record(history):
        name, record = found
        record.drain, record.reason = True, "bad disk"
        history.decisions[name] = Decision(drain=True, reason="bad disk")


def administrator_takes_down(history: History) -> None:
    """State=DOWN ends the jobs of the node; that is what the administrator asked for."""
    if found := _record(history):
        name, record = found
        history.slurm.end_jobs_on(name)
        record.down, record.reason = True, "replacing the fan"
        history.decisions[name] = Decision(drain=False, reason="replacing the fan")


def administrator_resumes(history: History) -> None:
    """State=RESUME on a node that an administrator took out of service."""
    claimed = sorted(name for name, record in history.slurm.records.items() if record.claimed)
    if claimed:
        name = history.rng.choice(claimed)
        record = history.slurm.records[name]
        record.drain = record.down = False
        record.reason, record.unheard = "", True
        history.decisions.pop(name, None)
        if record.silent_since is not None:
            history.machines.ended_by_others.add(name)  # its worker went while it was the administrator's


def administrator_deletes_a_record(history: History) -> None:
    """`scontrol delete node`, which Slurm refuses while jobs run there.

    A pod that still says that jobs run there is left to the administrator: the operator says so and waits.
    """
    if found := _record(history):
        name, _ = found
        says_so = any(pod.spec.hostname == name and says_busy(pod) for pod in history.machines.pods())
        if not history.slurm.needed_by(name) and not says_so:
            del history.slurm.records[name]
            history.deleted_records.add(name)
            history.decisions.pop(name, None)


# slurmctld and slurmrestd


def slurm_away(history: History) -> None:
    history.slurm.reachable = False
    history.view.read()


def slurm_back(history: History) -> None:
    history.slurm.reachable = True
    history.view.read()


def slurmctld_restarts(history: History) -> None:
    history.slurm.restart(killed=False)


def slurmctld_is_killed(history: History) -> None:
    """What it had not saved is lost, also what an administrator had just said."""
    history.slurm.restart(killed=True)
    history.view.unanswered |= history.slurm.records.keys()
    for pod in history.machines.pods():
        record = history.slurm.records.get(pod.spec.hostname)
        if record is not None and record.address == pod.status.pod_ip and history.machines.is_up(pod):
            record.silent_since = None  # a record that is back, and whose slurmd has been there all the time
    claimed = {name: record for name, record in history.slurm.records.items() if record.claimed}
    history.decisions = {name: Decision(record.drain, record.reason) for name, record in claimed.items()}


def registration_in_flight(history: History) -> None:
    """A registration that was under way when its record was deleted makes it again."""
    for pod in history.machines.pods():
        if history.machines.is_up(pod) and pod.spec.hostname not in history.slurm.records:
            history.machines.register(pod)


# Users and administrators of Kubernetes


def scaled(history: History) -> None:
    history.change_nodeset(replicas=history.rng.randrange(6))


def updated(history: History) -> None:
    history.change_nodeset(slurmd={"image": f"slurmd:{history.rng.randrange(3)}"})


def updated_badly(history: History) -> None:
    history.change_nodeset(slurmd={"image": BAD_IMAGE})


def mode_changes(history: History) -> None:
    history.change_nodeset(scaling_mode=history.rng.choice(("StatefulSet", "DaemonSet")))


def nodeset_is_deleted(history: History) -> None:
    history.delete_nodeset()


def nodeset_is_created(history: History) -> None:
    if not history.exists:
        history.create_nodeset(
            history.rng.randrange(1, 5), scalingMode=history.rng.choice(("StatefulSet", "DaemonSet"))
        )


def pod_is_deleted(history: History) -> None:
    if pod := _pod(history):
        history.machines.ended_by_others.add(pod.spec.hostname)
        history.kube.begin_deletion(PODS, (pod.metadata.namespace, pod.metadata.name))


def pod_fails(history: History) -> None:
    if pod := _pod(history):
        history.machines.fail(pod)


def pod_is_cordoned(history: History) -> None:
    _annotate(history, {names.ANNOTATION_POD_CORDON: "true"})


def pod_is_uncordoned(history: History) -> None:
    _annotate(history, {})


def _annotate(history: History, annotations: dict[str, str]) -> None:
    pod = _pod(history)
    if pod is not None and pod.metadata.deletion_timestamp is None:
        kept = {key: value for key, value in pod.metadata.annotations.items() if key != names.ANNOTATION_POD_CORDON}
        meta = msgspec.structs.replace(pod.metadata, annotations={**kept, **annotations})
        history.kube.put(PODS, msgspec.structs.replace(pod, metadata=meta))


def node_is_cordoned(history: History) -> None:
    if nodes := history.machines.nodes():
        history.machines.cordon(history.rng.choice(nodes), True)


def node_is_uncordoned(history: History) -> None:
    if cordoned := [node for node in history.machines.nodes() if node.spec.unschedulable]:
        history.machines.cordon(history.rng.choice(cordoned), False)


def node_goes(history: History) -> None:
    nodes = history.machines.nodes()
    if len(nodes) > NODES - 2:
        history.machines.lose_node(history.rng.choice(nodes))


def node_comes(history: History) -> None:
    for number in range(NODES):
        history.machines.add_node(number)


OUTSIDE: tuple[Event, ...] = (
    job_starts,
    job_ends,
    job_names_a_node,
    administrator_suspends,
    administrator_reserves,
    administrator_drains,
    administrator_takes_down,
    administrator_resumes,
    registration_in_flight,
)
"""May happen between the operator's look at the world and its writes."""

ANY: tuple[Event, ...] = (
    *OUTSIDE,
    job_starts,
    job_starts,
    job_ends,
    administrator_continues,
    administrator_frees,
    administrator_deletes_a_record,
    slurm_away,
    slurm_back,
    slurmctld_restarts,
    slurmctld_is_killed,
    scaled,
    scaled,
    updated,
    mode_changes,
    nodeset_is_deleted,
    nodeset_is_created,
    pod_is_deleted,
    pod_fails,
    pod_is_cordoned,
    pod_is_uncordoned,
    node_is_cordoned,
    node_is_uncordoned,
    node_goes,
    node_comes,
)
