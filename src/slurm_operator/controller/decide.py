"""What to do next about one Controller."""

from collections.abc import Iterator

from slurm_operator.api import names
from slurm_operator.controller.delivery import LISTEN_SECONDS, LONG_SECONDS, PATIENT_SECONDS, Listen, active_pod
from slurm_operator.controller.hands import ControllerHands
from slurm_operator.controller.observe import Seen
from slurm_operator.controller.partitions import UNPROVEN, LookAtPartitions
from slurm_operator.controller.report import PENDING, is_delivering, report
from slurm_operator.desired.config import config_hash, configuration, delivered_files, place_of
from slurm_operator.desired.controller import controller_objects, service_monitor
from slurm_operator.desired.keyring import unfit_key
from slurm_operator.kube.custom import CONTROLLERS
from slurm_operator.kube.kinds import PODS, STATEFUL_SETS, Pod
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.children import KubeAction, delete, is_changing, kept, patch, unread, unwanted
from slurm_operator.runtime.plan import Action, Plan, soonest
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.runtime.uncreated import explained, look_in
from slurm_operator.slurm.conf.lint import errors, lint

RESTART = ("StatefulSet", "ConfigMap")
"""What a configuration that would kill slurmctld must not reach."""
CLOSING_SECONDS = 5.0
"""Between two questions whether slurmctld answers and has taken up a configuration that closes a partition."""
WAITING_SECONDS = 30.0
"""Between two looks while a partition waits for its jobs, or a NodeSet cannot be read."""


def decide(seen: Seen) -> Plan[ControllerHands]:
    controller, children = seen.controller, seen.slurmctld.children
    if controller.metadata.terminating:
        return Plan()
    if seen.refs.loading:
        return unread(CONTROLLERS, controller, seen.refs, seen.now)
    objects, trouble = wanted(seen)
    if trouble is None and not seen.keys_are_there:
        return Plan(tuple(report(seen, None)))
    if remade := list(outdated(seen)):
        objects = [manifest for manifest in objects if manifest["kind"] != "StatefulSet"]
    actions: list[KubeAction] = [*remade, *kept(CONTROLLERS, controller, children, objects)]
    if trouble is None and not remade:
        actions += [*unwanted(children, objects), *refreshed(seen), *misnamed(seen), *replaced(seen)]
        if is_changing(children, objects) and not seen.refusals:
            return Plan(tuple(actions))
    listening = tuple(listened(seen)) if trouble is None else ()
    missing = seen.slurmctld.missing_for
    looks: tuple[Action[ControllerHands], ...] = (
        *asked(seen),
        *listening,
        *explained(seen.slurmctld.workload, missing),
    )
    after = soonest(next_look(seen), _listen_again(seen) if listening else None, look_in(missing))
    return Plan((*actions, *looks, *report(seen, trouble)), after=after)


def asked(seen: Seen) -> Iterator[LookAtPartitions]:
    """Partitions that the configuration in force closes: slurmctld says whether it has taken that up."""
    if closed := tuple(one.group.name for one in seen.retired if one.ask):
        yield LookAtPartitions(seen.controller.key, closed)


def listened(seen: Seen) -> Iterator[Listen]:
    """Whether slurmctld has accepted a configuration in place: its sidecar says so."""
    active = active_pod(seen.slurmctld.pods)
    if active is not None and is_delivering(seen):
        yield Listen(seen.controller.key, active.metadata.name, active.metadata.uid)


def _listen_again(seen: Seen) -> float:
    pending = seen.controller.status.condition(names.CONDITION_PROGRESSING)
    since = pending.last_transition_time if pending is not None and pending.reason == PENDING else None
    is_long = seen.now - seconds_of(since, absent=seen.now) > LONG_SECONDS
    return PATIENT_SECONDS if is_long or (seen.heard is not None and seen.heard.refusal) else LISTEN_SECONDS


def next_look(seen: Seen) -> float | None:
    if any(one.why == UNPROVEN and not one.confirmed for one in seen.retired):
        return CLOSING_SECONDS
    return WAITING_SECONDS if seen.retired or seen.unreadable else None


def wanted(seen: Seen) -> tuple[list[Manifest], Trouble | None]:
    """What should exist; less what a mistake of the user's would break."""
    if trouble := missing(seen):
        return [], trouble
    try:
        objects = controller_objects(seen.controller, seen.facts)
        monitor = service_monitor(seen.controller) if seen.monitors else None
        trouble = unsafe(seen)
    except ValueError as error:
        return [], Trouble("InvalidSpec", str(error))
    if trouble is not None:
        return [manifest for manifest in objects if manifest["kind"] not in RESTART], trouble
    return [*objects, *([monitor] if monitor else [])], None


def missing(seen: Seen) -> Trouble | None:
    """The first thing that the Controller refers to and that is not there."""
    spec, namespace = seen.controller.spec, seen.controller.metadata.namespace
    if trouble := seen.refs.missing_keys(namespace, spec) or unfit_key(seen.refs, spec.slurm_key_ref):
        return trouble
    if spec.accounting_name and seen.facts.accounting is None:
        cure = "create it, or correct accountingRef"
        return Trouble("AccountingNotFound", f"Accounting {namespace}/{spec.accounting_name} does not exist: {cure}")
    maps = [(ref.name, "configFileRefs") for ref in spec.config_file_refs]
    maps += [(ref.name, "the script references") for ref in spec.script_refs]
    found = (seen.refs.missing_config_map(namespace, name, field) for name, field in maps)
    return next((trouble for trouble in found if trouble is not None), None)


def unsafe(seen: Seen) -> Trouble | None:
    """A configuration that would end slurmctld is not applied; the one that runs goes on."""
    if seen.controller.spec.external:
        return None
    found = errors(lint(configuration(seen.controller, seen.facts)))
    if not found:
        return None
    rest = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    running = "the running configuration stays in force" if seen.config else "nothing was started"
    place = place_of(seen.controller, seen.facts, found[0].file, found[0].line)
    return Trouble("ConfigurationRejected", f"{found[0].told_at(place)}{rest}; {running} until it is corrected")


def outdated(seen: Seen) -> Iterator[KubeAction]:
    """Some fields of a StatefulSet cannot be changed: it is made anew, and the claims stay."""
    live = seen.slurmctld.workload
    if live is None or live.metadata.terminating or not _ours(seen) or seen.controller.spec.external:
        return
    if live.spec.service_name != names.controller_internal(seen.controller.metadata.name):
        # The pods' names in the DNS change, so they are replaced too.
        yield delete(STATEFUL_SETS, live)
    elif live.spec.pod_management_policy != "Parallel":
        # The new one adopts the pods as they are: slurmctld goes on running.
        yield delete(STATEFUL_SETS, live, propagation="Orphan")


def misnamed(seen: Seen) -> Iterator[KubeAction]:
    """Return the deletions of pods below another Service: a StatefulSet adopts them as they are and never renames them.

    A pod is left behind like that when its old StatefulSet went without it, e.g. by `kubectl delete --cascade=orphan`.
    """
    if seen.slurmctld.workload is None or not _ours(seen):
        return
    service = names.controller_internal(seen.controller.metadata.name)
    for pod in seen.slurmctld.pods:
        if pod.spec.subdomain not in ("", service) and not pod.metadata.terminating:
            yield delete(PODS, pod)


def _ours(seen: Seen) -> bool:
    return any(kind is STATEFUL_SETS for kind, _ in seen.slurmctld.children)


def refreshed(seen: Seen) -> Iterator[KubeAction]:
    """A touched pod makes its kubelet look for new files at once instead of within a minute or two."""
    if not seen.controller.spec.inplace_reconfigure or seen.config is None:
        return
    if dict(seen.config.data) != delivered_files(seen.controller, seen.facts):
        return  # not before the files are there
    digest = config_hash(seen.controller, seen.facts)
    for pod in seen.slurmctld.pods:
        if pod.metadata.annotations.get(names.ANNOTATION_CONFIG_GENERATION) != digest and not pod.metadata.terminating:
            yield patch(PODS, pod, {"metadata": {"annotations": {names.ANNOTATION_CONFIG_GENERATION: digest}}})


def replaced(seen: Seen) -> Iterator[KubeAction]:
    """With standbys pods are replaced one at a time, the active one last: only readiness tells who is active."""
    workload = seen.slurmctld.workload
    if workload is None or not seen.controller.spec.high_availability or not workload.status.update_revision:
        return
    running = [pod for pod in seen.slurmctld.pods if pod.status.phase == "Running" and not pod.metadata.terminating]
    if len(running) < workload.spec.replicas or not any(map(_active, running)):
        return
    old = [pod for pod in running if _revision(pod) != workload.status.update_revision]
    for pod in sorted(old, key=lambda pod: (_active(pod), pod.metadata.name))[:1]:
        yield delete(PODS, pod)


def _active(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.is_true for condition in pod.status.conditions)


def _revision(pod: Pod) -> str:
    return pod.metadata.labels.get("controller-revision-hash", "")
