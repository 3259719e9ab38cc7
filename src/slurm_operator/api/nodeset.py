"""NodeSet: a group of equal Slurm workers."""

from re import fullmatch
from typing import Annotated, Any, ClassVar, Literal

from slurm_operator.api.common import (
    CONTROLLER_NEEDS_NAME,
    CONTROLLER_STAYS,
    Container,
    LocalObjectReference,
    Metadata,
    PodSpec,
    Replicas,
    SecretKeySelector,
    Status,
    Text,
)
from slurm_operator.api.kind import AGE, WAITING, Column, Kind, Object
from slurm_operator.api.meta import Defaulted, Nullable, OrDefault, Required, Spec
from slurm_operator.api.names import WIDEST_ORDINAL
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.syntax import NODE_OPTIONS, NOT_NEGATIVE, ONE_LINE, PERCENTAGE, RESERVATION_FLAG, SUBDOMAIN
from slurm_operator.api.values import DURATION_PATTERN, IntOrString, duration_or, parse_duration, resolve_count

ScalingMode = Literal["StatefulSet", "DaemonSet"]
UpdateType = Literal["RollingUpdate", "OnDelete", "ScheduledUpdate"]
Retention = Literal["Retain", "Delete"]
Pruning = Literal["Never", "NodeNotFound"]

DEFAULT_DURATION = "30m"
DEFAULT_MAX_UNAVAILABLE = "25%"

Count = Annotated[int, checked(format="int32")]
Flag = Annotated[str, checked(RESERVATION_FLAG, maxLength=128)]
NotNegative = Annotated[int, checked(NOT_NEGATIVE, format="int32")]

HOSTNAME_PREFIX = Rule(
    cel=(
        "!has(self.spec) || !has(self.spec.hostname) || self.spec.hostname == ''"
        f" || self.spec.hostname.matches(r'^{SUBDOMAIN}-*$')"
    ),
    holds=lambda template: template.hostname == "" or fullmatch(f"{SUBDOMAIN}-*", template.hostname) is not None,
    message="hostname is not the beginning of a host name",
    hint="use lower-case letters, digits and -, as in gpu-",
    path=".spec",
)
NEEDS_SSSD = Rule(
    cel="!self.enabled || has(self.sssdConfRef) && self.sssdConfRef.name != ''",
    holds=lambda ssh: not ssh.enabled or ssh.sssd_conf_ref.name != "",
    message="sssdConfRef.name is missing",
    hint="ssh is enabled, so name the Secret that holds sssd.conf",
    path=".sssdConfRef",
    reason="FieldValueRequired",
)
SOME_UNAVAILABLE = Rule(
    cel=f"type(self) == int ? self >= 1 : self.matches(r'^{PERCENTAGE}$')",
    holds=lambda value: value >= 1 if isinstance(value, int) else fullmatch(PERCENTAGE, value) is not None,
    message="maxUnavailable must let at least one worker go",
    hint="write a number from 1, or a percentage such as 25%",
)
LONG_ENOUGH = Rule(
    cel="duration(self) == duration('0s') || duration(self) >= duration('1m')",
    holds=lambda text: parse_duration(text) == 0 or parse_duration(text) >= 60,
    message="too short for a Slurm reservation",
    hint="write 1m or more",
)
NEEDS_SCHEDULE = Rule(
    cel=(
        "self.type != 'ScheduledUpdate' || has(self.scheduledUpdate)"
        " && has(self.scheduledUpdate.startTime) && has(self.scheduledUpdate.duration)"
    ),
    holds=lambda strategy: strategy.type != "ScheduledUpdate" or strategy.scheduled_update.start_time is not None,
    message="scheduledUpdate must say when",
    hint="give startTime, as in 2030-01-31T22:00:00Z, and duration",
    path=".scheduledUpdate",
    reason="FieldValueRequired",
)
CLAIMS_STAY = Rule(
    cel=(
        "has(self.volumeClaimTemplates) && has(oldSelf.volumeClaimTemplates)"
        " ? self.volumeClaimTemplates == oldSelf.volumeClaimTemplates"
        " : (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates.size() == 0)"
        " && (!has(oldSelf.volumeClaimTemplates) || oldSelf.volumeClaimTemplates.size() == 0)"
    ),
    holds=lambda spec, old: spec.volume_claim_templates == old.volume_claim_templates,
    message="volumeClaimTemplates cannot be changed",
    hint="create a new NodeSet with the other claims instead",
    path=".volumeClaimTemplates",
    reason="FieldValueForbidden",
)
PADDING = Rule(
    cel=f"self >= 0 && self <= {WIDEST_ORDINAL}",
    holds=lambda width: 0 <= width <= WIDEST_ORDINAL,
    message="not a width for ordinals",
    hint=f"write a number from 0 to {WIDEST_ORDINAL}",
)


class WorkerTemplate(Spec):
    """What to add to the worker pods."""

    rules: ClassVar[tuple[Rule, ...]] = (HOSTNAME_PREFIX,)

    metadata: OrDefault[Metadata] = Metadata()
    """Labels and annotations of the pods."""
    spec: OrDefault[
        Annotated[
            PodSpec,
            checked(
                properties={
                    "hostname": {
                        "type": "string",
                        "maxLength": 253,
                        "description": "How host names, and so Slurm node names, begin; the ordinal follows.",
                    }
                }
            ),
        ]
    ] = {}
    """A core/v1 PodSpec that is merged over the generated one; hostname is the prefix of the Slurm node names."""

    @property
    def hostname(self) -> str:
        """What the users' host names begin with, or nothing."""
        hostname = self.spec.get("hostname")
        return hostname if isinstance(hostname, str) else ""


class Ssh(Spec):
    """ssh into workers that run a job of the user."""

    rules: ClassVar[tuple[Rule, ...]] = (NEEDS_SSSD,)

    enabled: Required[Defaulted[bool]] = False
    """Whether sshd runs on the workers."""
    extra_sshd_config: OrDefault[Text] = ""
    """Lines to add to sshd_config."""
    sssd_conf_ref: Required[SecretKeySelector] = SecretKeySelector()
    """Secret with sssd.conf, which says where users come from."""


class Partition(Spec):
    """A partition of exactly these workers."""

    enabled: Required[Defaulted[bool]] = False
    """Whether slurm.conf gets a partition for this NodeSet."""
    config: Annotated[str, checked(ONE_LINE, pattern=r"^[^\n]+$", maxLength=16384)] | None = None
    """Options of the partition on one line, as in State=UP MaxTime=UNLIMITED."""


class RollingUpdate(Spec):
    """How many workers are replaced at once."""

    max_unavailable: Defaulted[Annotated[IntOrString, checked(SOME_UNAVAILABLE, maxLength=64)]] = (
        DEFAULT_MAX_UNAVAILABLE
    )
    """Most workers that may be away, as a number or a percentage that rounds up."""

    def limit(self, workers: int) -> int:
        """Most of so many workers that may be away: at least one, whatever an old object says."""
        try:
            return max(1, resolve_count(self.max_unavailable, workers))
        except ValueError:
            return 1


class ScheduledUpdate(Spec):
    """The maintenance window in which workers are replaced."""

    start_time: Annotated[str, checked(format="date-time")] | None = None
    """When the window opens, as in 2030-01-31T22:00:00Z."""
    duration: Defaulted[Annotated[str, checked(LONG_ENOUGH, pattern=DURATION_PATTERN, maxLength=64)]] = DEFAULT_DURATION
    """How long the window is open, at least 1m."""
    flags: Nullable[Annotated[tuple[Flag, ...], checked(maxItems=64)]] = ()
    """Further flags of the Slurm reservation, such as DAILY or WEEKLY."""

    @property
    def duration_seconds(self) -> float:
        """Length of the window; zero means the default."""
        return duration_or(self.duration, DEFAULT_DURATION) or parse_duration(DEFAULT_DURATION)


class UpdateStrategy(Spec):
    """How workers of an old revision are replaced."""

    rules: ClassVar[tuple[Rule, ...]] = (NEEDS_SCHEDULE,)

    type: Defaulted[UpdateType] = "RollingUpdate"
    """RollingUpdate drains and replaces workers a few at a time, OnDelete leaves it to you, ScheduledUpdate
    waits for a maintenance window, which is not implemented yet: healthy workers stay until their pods are deleted."""
    rolling_update: OrDefault[RollingUpdate] = RollingUpdate()
    """Limits of a rolling update."""
    scheduled_update: OrDefault[ScheduledUpdate] = ScheduledUpdate()
    """The window of a scheduled update."""


class ClaimRetention(Spec):
    """What becomes of the workers' claims."""

    when_deleted: Defaulted[Retention] = "Retain"
    """When the NodeSet is deleted."""
    when_scaled: Defaulted[Retention] = "Retain"
    """When a worker is removed by scale-in."""


class NodeSetSpec(Spec):
    """What the workers should look like."""

    rules: ClassVar[tuple[Rule, ...]] = (CONTROLLER_NEEDS_NAME, CONTROLLER_STAYS, CLAIMS_STAY)

    controller_ref: Required[LocalObjectReference] = LocalObjectReference()
    """The Controller whose cluster the workers join. Cannot be changed later."""
    replicas: Defaulted[Replicas] = 1
    """How many workers in StatefulSet mode; ignored in DaemonSet mode."""
    scaling_mode: Defaulted[ScalingMode] = "StatefulSet"
    """StatefulSet runs the number of workers that replicas says, DaemonSet one on every Node that fits."""
    slurmd: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the generated slurmd container; must give the image."""
    ssh: Ssh | None = None
    """ssh into the workers."""
    logfile: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the log sidecar; must give the image."""
    template: OrDefault[WorkerTemplate] = WorkerTemplate()
    """What to add to the worker pods."""
    extra_conf: OrDefault[Annotated[str, checked(NODE_OPTIONS, maxLength=16384)]] = ""
    """Options of the Slurm nodes as Key=Value pairs separated by spaces, as in Gres=gpu:8 Features=a100."""
    partition: Partition | None = None
    """A partition of exactly these workers."""
    volume_claim_templates: Nullable[Annotated[tuple[dict[str, Any], ...], checked(maxItems=64)]] = ()
    """core/v1 PersistentVolumeClaims that every worker gets its own copies of. Cannot be changed later."""
    update_strategy: OrDefault[UpdateStrategy] = UpdateStrategy()
    """How workers of an old revision are replaced."""
    revision_history_limit: Defaulted[NotNegative] = 0
    """Old revisions to keep beyond those in use."""
    persistent_volume_claim_retention_policy: OrDefault[ClaimRetention] = ClaimRetention()
    """What becomes of the workers' claims. Not implemented yet: they stay."""
    min_ready_seconds: OrDefault[NotNegative] = 0
    """How long a worker must be ready before it counts as available."""
    ordinal_padding: Defaulted[Annotated[int, checked(PADDING)]] = 0
    """Width to which ordinals are padded with zeros in names."""
    pin_to_node: Defaulted[bool] = False
    """Bring a worker back on the Kubernetes Node where it first ran, in StatefulSet mode. Not implemented yet."""
    workload_disruption_protection: Defaulted[bool] = True
    """Keep evictions away from workers that run jobs."""
    prune_slurm_node_records: Defaulted[Pruning] = "Never"
    """When to delete the Slurm records of workers whose Kubernetes Node is gone, in DaemonSet mode. Not implemented
    yet: they stay."""
    oversubscribe_node: Defaulted[bool] = False
    """Allow several workers on one Kubernetes Node."""

    @property
    def ssh_enabled(self) -> bool:
        return self.ssh is not None and self.ssh.enabled

    @property
    def partition_enabled(self) -> bool:
        return self.partition is not None and self.partition.enabled


class Drain(Spec):
    """Why the operator drains some workers, written down before Slurm is told."""

    cause: Required[str] = ""
    """What asks for it: scale-in, update, delete, mode, node-cordon or pod-cordon."""
    nodes: Required[str] = ""
    """The Slurm nodes, as a hostlist."""
    since: Required[Annotated[str, checked(format="date-time")]] = ""
    """When the operator began."""


class NodeSetStatus(Status):
    """What the operator last observed of the workers."""

    replicas: OrDefault[Count] = 0
    """Worker pods that exist."""
    updated_replicas: OrDefault[Count] = 0
    """Worker pods of the newest revision."""
    ready_replicas: OrDefault[Count] = 0
    """Worker pods that are ready."""
    available_replicas: OrDefault[Count] = 0
    """Worker pods that have been ready for minReadySeconds."""
    unavailable_replicas: OrDefault[Count] = 0
    """Workers that are wanted and not available."""
    desired: OrDefault[Count] = 0
    """Workers that are wanted."""
    slurm_idle: OrDefault[Count] = 0
    """Slurm nodes that are idle. Each node is counted once: as down, else as drained, else as allocated, else as idle.
    The four counts stay as last read while the condition SlurmReachable is not True."""
    slurm_allocated: OrDefault[Count] = 0
    """Slurm nodes with jobs, including jobs that are completing, that are neither down nor drained."""
    slurm_down: OrDefault[Count] = 0
    """Slurm nodes that are down."""
    slurm_drain: OrDefault[Count] = 0
    """Slurm nodes that are drained or draining, and not down."""
    node_set_hash: Required[str] = ""
    """Hash of the newest revision."""
    collision_count: OrDefault[Count] = 0
    """How often two revisions hashed alike."""
    ordinal_to_node: Nullable[dict[str, str]] = {}
    """Kubernetes Node of each ordinal, while workers are pinned."""
    selector: Required[str] = ""
    """Label selector of the pods, for autoscalers."""
    drains: OrDefault[tuple[Drain, ...]] = ()
    """Workers that the operator drains, and why."""


class NodeSet(Object):
    """A group of equal Slurm workers: slurmd."""

    spec: OrDefault[NodeSetSpec] = NodeSetSpec()
    """What the workers should look like."""
    status: OrDefault[NodeSetStatus] = NodeSetStatus()
    """What the operator last observed."""

    @property
    def slurm_name(self) -> str:
        """Name of the group within Slurm: NodeSet, feature and partition."""
        return self.spec.template.hostname.strip("-") or self.metadata.name


NODESET: Kind[NodeSet] = Kind(
    type=NodeSet,
    plural="nodesets",
    short_names=("nodesets", "nss", "slurmd"),
    columns=(
        Column("DESIRED", ".status.desired"),
        Column("REPLICAS", ".status.replicas"),
        Column("UPDATED", ".status.updatedReplicas"),
        Column("READY", ".status.readyReplicas"),
        Column("IDLE", ".status.slurmIdle", priority=1),
        Column("ALLOCATED", ".status.slurmAllocated", priority=1),
        Column("DOWN", ".status.slurmDown", priority=1),
        Column("DRAIN", ".status.slurmDrain", priority=1),
        Column("SLURM", '.status.conditions[?(@.type=="SlurmReachable")].reason', "string", priority=1),
        Column("STATUS", '.status.conditions[?(@.type=="Ready")].reason', "string"),
        AGE,
        WAITING,
    ),
    scalable=True,
)
