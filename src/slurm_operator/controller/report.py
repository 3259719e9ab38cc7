"""What a Controller says about itself."""

from collections.abc import Iterator
from dataclasses import replace

from slurm_operator.api import names
from slurm_operator.controller.delivery import REFUSED, active_pod, is_accepted, refused
from slurm_operator.controller.observe import Seen
from slurm_operator.controller.partitions import told
from slurm_operator.desired.config import config_hash
from slurm_operator.desired.keyring import progress_of
from slurm_operator.kube.custom import CONTROLLERS
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.model import find_condition
from slurm_operator.runtime.actions import RecordEvent
from slurm_operator.runtime.children import KubeAction, reported
from slurm_operator.runtime.conditions import Verdict, rollout_of, summed_up
from slurm_operator.runtime.trouble import Trouble

PENDING = "ConfigurationPending"
SHOWN_DIGITS = 12
"""Of a hash, in an event."""
ACTIVE = 1
"""Of several slurmctld only the active one is ever ready."""
CLAIM_STAYS = "; its claim stays as it was made, since Kubernetes cannot change claim templates"


def report(seen: Seen, trouble: Trouble | None) -> Iterator[KubeAction]:
    spec = seen.controller.spec
    if spec.external:
        where = spec.external_config
        done = f"slurmctld runs elsewhere, at {where.host}:{where.port}" if where else ""
        verdicts = summed_up(waiting="", done=done, blocked=trouble, refusals=seen.refusals)
        hashes = {}
    else:
        verdicts = summed_up(
            waiting=waiting_for(seen),
            done="slurmctld answers" + (CLAIM_STAYS if seen.facts.claim_templates is not None else ""),
            blocked=trouble or refused_configuration(seen),
            refusals=seen.refusals,
            noticed=claim_trouble(seen) or seen.slurmctld.trouble or unreadable(seen) or rotation_trouble(seen),
        )
        verdicts = [with_delivery(seen, with_retired(seen, verdict), trouble) for verdict in verdicts]
        hashes = {"configHash": in_force(seen, trouble), "deliveredConfigHash": delivered(seen, trouble)}
    filled = {key: value for key, value in hashes.items() if value}
    yield from reported(CONTROLLERS, seen.controller, verdicts, seen.now, **filled)
    if (now := hashes.get("deliveredConfigHash")) and now != seen.controller.status.delivered_config_hash:
        told = f"slurmctld has accepted configuration {now[:SHOWN_DIGITS]}"
        yield RecordEvent(CONTROLLERS, seen.controller, names.EVENT_CONFIGURATION_DELIVERED, told)


def waiting_for(seen: Seen) -> str:
    ref = seen.controller.spec.slurm_key_ref
    if ref is not None and not seen.keys_are_there:
        return f"waiting for Secret {names.key_ring(ref.name)} to be made of {ref.name}: no other may have that name"
    return rollout_of(seen.slurmctld.workload, "slurmctld", ACTIVE)


def with_retired(seen: Seen, verdict: Verdict) -> Verdict:
    """A slurmctld with nothing else under way may still wait for the jobs of a partition that is to leave."""
    if verdict.type != names.CONDITION_PROGRESSING or verdict.reason != "Settled" or not seen.retired:
        return verdict
    before = seen.controller.status.condition(names.CONDITION_PROGRESSING)
    message = told(seen.retired, before.message if before is not None else "")
    return replace(verdict, status="True", reason="PartitionRetired", message=message)


def unreadable(seen: Seen) -> Trouble | None:
    """A NodeSet that this operator cannot read: which partition is its own is not known."""
    if not seen.unreadable:
        return None
    first, rest = seen.unreadable[0], len(seen.unreadable) - 1
    about = f"NodeSet {seen.controller.metadata.namespace}/{first}{f' (and {rest} more)' if rest else ''}"
    cause = "does not fit the type that this version of the operator knows (its log says why)"
    cure = "correct the NodeSet or install the version of the operator that it was written for"
    return Trouble("UnreadableNodeSet", f"{about} {cause}; no partition leaves slurm.conf until then: {cure}")


def rotation_trouble(seen: Seen) -> Trouble | None:
    """A rotation of the key that does not get on. Everybody still agrees on a key, so that nothing stands still."""
    waiting = progress_of(seen.ring).waiting if seen.ring is not None else ""
    return (
        Trouble("KeyRotationWaits", f"the new slurm.key is not everywhere in use yet: {waiting}") if waiting else None
    )


def in_force(seen: Seen, trouble: Trouble | None) -> str:
    """What the cluster should run: while the spec is not accepted, what was asked for before."""
    if trouble is not None:
        return seen.controller.status.config_hash
    return config_hash(seen.controller, seen.facts)


def delivered(seen: Seen, trouble: Trouble | None) -> str:
    """What slurmctld has accepted last."""
    before = seen.controller.status.delivered_config_hash
    if trouble is not None:
        return before
    wanted = config_hash(seen.controller, seen.facts)
    return wanted if is_accepted(seen.controller, seen.slurmctld.pods, seen.heard, wanted) else before


def is_delivering(seen: Seen) -> bool:
    """Return whether a configuration in place was not accepted yet."""
    spec = seen.controller.spec
    if spec.external or not spec.inplace_reconfigure:
        return False
    return seen.controller.status.delivered_config_hash != config_hash(seen.controller, seen.facts)


def refused_configuration(seen: Seen) -> Trouble | None:
    if not is_delivering(seen) or active_pod(seen.slurmctld.pods) is None:
        return None
    before = seen.controller.status.condition(names.CONDITION_DEGRADED)
    if seen.heard is None and before is not None and before.reason == REFUSED:
        return Trouble(REFUSED, before.message)  # a restart of ours is no news
    return refused(seen.slurmctld.pods, seen.heard, config_hash(seen.controller, seen.facts))


def with_delivery(seen: Seen, verdict: Verdict, trouble: Trouble | None) -> Verdict:
    """A slurmctld with nothing else under way may still have to take up its configuration."""
    if verdict.type != names.CONDITION_PROGRESSING or verdict.reason != "Settled" or trouble is not None:
        return verdict
    if not is_delivering(seen) or delivered(seen, None) == config_hash(seen.controller, seen.facts):
        return verdict
    before = seen.controller.status.condition(names.CONDITION_PROGRESSING)
    if seen.heard is None and before is not None and before.reason == PENDING:
        return replace(verdict, status="True", reason=PENDING, message=before.message)  # a restart of ours is no news
    told = "waiting for slurmctld to accept the configuration; see the log of its container reconfigure"
    unread = f" (which cannot be read: {seen.heard.unread})" if seen.heard is not None and seen.heard.unread else ""
    return replace(verdict, status="True", reason=PENDING, message=told + unread)


def claim_trouble(seen: Seen) -> Trouble | None:
    """A pod that waits for its volume, with the claim's name."""
    for pod in seen.slurmctld.pods:
        scheduled = find_condition(pod.status.conditions, "PodScheduled")
        told = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
        if "persistentvolumeclaim" in told.lower() or "persistent volume" in told.lower():
            claim = seen.controller.spec.persistence.existing_claim or _claim_of(pod)
            cure = "check persistence.storageClassName and that its provisioner runs, or provide a volume"
            about = f"PersistentVolumeClaim {pod.metadata.namespace}/{claim} has no volume"
            return Trouble("ClaimNotBound", f"{about}, so {pod.metadata.name} cannot start ({told}): {cure}")
    return None


def _claim_of(pod: Pod) -> str:
    return f"statesave-{pod.metadata.name}"
