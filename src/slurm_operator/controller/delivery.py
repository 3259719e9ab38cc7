"""Whether slurmctld has accepted the configuration that it was given.

That a pod was given files says nothing about slurmctld. Where slurmctld restarts for new files, a slurmctld that is
ready has read them. In place, the sidecar `reconfigure` tells slurmctld of them and writes down what became of that:
the last line of its log names the hash of the files, which the last line of slurm.conf carries.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slurm_operator.api import Controller, names
from slurm_operator.kube.client import Client
from slurm_operator.kube.errors import ApiError, Forbidden
from slurm_operator.kube.kinds import PODS, ConfigMap, Pod, StatefulSet
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.runtime.trouble import CRASHES, Trouble
from slurm_operator.slurm.conf.writer import stamp_of

CONTAINER = "reconfigure"
REFUSED = "ConfigurationRefused"
LOG_LINES = 5
LOG_BYTES = 65536
"""Of a log, as much as is read: the sidecar's own lines are far shorter."""
ANSWER_SECONDS = 5.0
"""How long the API server may take to read a log."""
LISTEN_SECONDS = 2.0
"""Between two looks at the log while a configuration is not accepted."""
PATIENT_SECONDS = 10.0
"""The same after it was refused, or for a long time not accepted."""
LONG_SECONDS = 60.0
_LINE = re.compile(r"(accepted|refused|waiting) ([0-9a-f]{64})(?:: (.*))?")
_LONGEST_WORDS = 1000


@dataclass(frozen=True, slots=True)
class Heard:
    """What the sidecar of one pod wrote last."""

    pod: str
    """Uid of the pod."""
    config_hash: str = ""
    accepted: bool = False
    refusal: str = ""
    """What scontrol or slurmctld said against the files."""
    unread: str = ""
    """Why its log could not be read the last time."""


def read_log(pod: str, log: str) -> Heard:
    """Return what the last telling line of a log says."""
    found = [match for line in log.split("\n") if (match := _LINE.fullmatch(line.strip()))]
    if not found:
        return Heard(pod)
    word, config_hash, rest = found[-1].groups()
    refusal = (rest or "no reason was given")[:_LONGEST_WORDS] if word == "refused" else ""
    return Heard(pod, config_hash, word == "accepted", refusal)


def active_pod(pods: Sequence[Pod]) -> Pod | None:
    """Return the pod whose slurmctld answers, if any."""
    return next((pod for pod in pods if not pod.metadata.terminating and _is_ready(pod)), None)


def is_accepted(controller: Controller, pods: Sequence[Pod], heard: Heard | None, wanted: str) -> bool:
    """Return whether slurmctld answers with exactly this configuration."""
    active = active_pod(pods)
    if active is None:
        return False
    if controller.spec.inplace_reconfigure:
        return heard is not None and heard.accepted and (heard.pod, heard.config_hash) == (active.metadata.uid, wanted)
    staying = [pod for pod in pods if not pod.metadata.terminating]
    return all(pod.metadata.annotations.get(names.ANNOTATION_SLURM_CONFIG_HASH) == wanted for pod in staying)


def refused(pods: Sequence[Pod], heard: Heard | None, wanted: str) -> Trouble | None:
    """Say why slurmctld goes on with an older configuration."""
    active = active_pod(pods)
    if active is None or heard is None or not heard.refusal:
        return None
    if (heard.pod, heard.config_hash) != (active.metadata.uid, wanted):
        return None
    where = f"pod {active.metadata.namespace}/{active.metadata.name}"
    cure = "correct extraConf, the files of configFileRefs or partition.config of the NodeSets"
    goes_on = "slurmctld runs on with the configuration before it and could not start with the new one"
    return Trouble(REFUSED, f"{where} does not accept the configuration: {heard.refusal.strip()}; {goes_on}: {cure}")


def is_broken(config: ConfigMap | None, delivered: str, slurmctld: Daemon[StatefulSet], heard: Heard | None) -> bool:
    """Return whether slurmctld is known to refuse the configuration in force, or to end with it."""
    stamp = stamp_of(config.data.get("slurm.conf", "")) if config is not None else ""
    if not stamp or stamp == delivered:
        return False
    trouble = slurmctld.trouble
    ends = trouble is not None and trouble.reason == CRASHES
    return ends or (heard is not None and bool(heard.refusal) and heard.config_hash == stamp)


def _is_ready(pod: Pod) -> bool:
    ready = find_condition(pod.status.conditions, "Ready")
    return ready is not None and ready.is_true


class Deliveries:
    """What the sidecars of each cluster wrote last, as far as it was read."""

    def __init__(self) -> None:
        self._heard: dict[Key, Heard] = {}

    def heard(self, cluster: Key) -> Heard | None:
        return self._heard.get(cluster)

    def forget(self, cluster: Key) -> None:
        self._heard.pop(cluster, None)

    async def listen(self, client: Client, cluster: Key, name: str, uid: str) -> bool:
        """Read the log of the sidecar; return whether it says something new. Without an answer the last word stands."""
        before = self._heard.get(cluster)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                log = await client.log(PODS, name, cluster[0], container=CONTAINER, lines=LOG_LINES, limit=LOG_BYTES)
            now = read_log(uid, log)
        except (ApiError, TimeoutError) as error:
            # Other texts name ports and times: they would be news each time.
            cause = str(error) if isinstance(error, Forbidden) else "the API server or the kubelet gives no answer"
            now = replace(before or Heard(uid), unread=cause)
        self._heard[cluster] = now
        return now != before


class HearsDeliveries(HasKube, Protocol):
    @property
    def deliveries(self) -> Deliveries: ...


@dataclass(frozen=True, slots=True)
class Listen:
    """Read what the sidecar of a slurmctld says about the configuration."""

    cluster: Key
    pod: str
    uid: str
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return f"read the log of container {CONTAINER} of Pod {self.cluster[0]}/{self.pod}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self)}

    async def run(self, hands: HearsDeliveries) -> Done:
        news = await hands.deliveries.listen(hands.kube.client, self.cluster, self.pod, self.uid)
        return Done(wrote=False, after=0.0 if news else None)
