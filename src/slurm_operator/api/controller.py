"""Controller: one Slurm cluster, that is slurmctld and the configuration that all other daemons fetch from it."""

from typing import Annotated, ClassVar

from slurm_operator.api import names
from slurm_operator.api.common import (
    JWT_KEY_STAYS,
    NEEDS_EXTERNAL_CONFIG,
    NEEDS_JWT_KEY,
    NEEDS_SLURM_KEY,
    ClaimSpec,
    Container,
    KeyReferences,
    LocalObjectReference,
    PodTemplate,
    PrometheusDuration,
    ServiceSpec,
    Status,
    Text,
)
from slurm_operator.api.kind import AGE, READY, STATUS, WAITING, Kind, Object
from slurm_operator.api.meta import Defaulted, Nullable, OrDefault, Required, Spec
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.syntax import CLUSTER_NAME, OBJECT_NAME

CLUSTER_NAME_LIMIT = 40
"""Longest ClusterName that fits into the table names of the accounting database."""

MOST_BACKUPS = 63
"""Each is a line of slurm.conf and a pod; more than this is a slip of the finger."""

FileRefs = Nullable[Annotated[tuple[LocalObjectReference, ...], checked(maxItems=256)]]


class HighAvailability(Spec):
    """Standby slurmctld daemons."""

    enabled: Required[Defaulted[bool]] = False
    """Whether standby daemons run beside the active one."""
    backups: Defaulted[Annotated[int, checked(format="int32", minimum=1, maximum=MOST_BACKUPS)]] = 1
    """How many standby daemons."""


class Persistence(ClaimSpec):
    """Where slurmctld keeps its state. The other fields are those of a PersistentVolumeClaim."""

    enabled: Required[Defaulted[bool]] = True
    """Whether the state outlives the pod. Cannot be changed later."""
    existing_claim: OrDefault[Annotated[str, checked(OBJECT_NAME, maxLength=253)]] = ""
    """A claim to use instead of a generated one. Cannot be changed later."""


class MetricEndpoint(Spec):
    """One path to scrape."""

    path: Required[str] = ""
    """HTTP path, such as /metrics/jobs."""
    interval: OrDefault[PrometheusDuration] = ""
    """How often to scrape; overrides the monitor's."""
    scrape_timeout: OrDefault[PrometheusDuration] = ""
    """How long to wait; overrides the monitor's."""


class ServiceMonitor(Spec):
    """The ServiceMonitor that tells the Prometheus operator what to scrape."""

    enabled: Defaulted[bool] = False
    """Whether to create it, where the cluster knows that kind."""
    labels: Nullable[dict[str, str]] = {}
    """Labels to add, by which Prometheus selects its monitors."""
    annotations: Nullable[dict[str, str]] = {}
    """Annotations to add."""
    interval: OrDefault[PrometheusDuration] = ""
    """How often to scrape."""
    scrape_timeout: OrDefault[PrometheusDuration] = ""
    """How long to wait for an answer."""
    endpoints: Nullable[tuple[MetricEndpoint, ...]] = ()
    """What to scrape; empty means jobs, nodes, partitions and scheduler."""


class Metrics(Spec):
    """Metrics that slurmctld serves itself."""

    enabled: Defaulted[bool] = False
    """Whether slurmctld serves OpenMetrics."""
    service_monitor: Nullable[ServiceMonitor] = ServiceMonitor()
    """How Prometheus finds them."""


HA_NEEDS_CLAIM = Rule(
    cel=(
        "!has(self.ha) || !self.ha.enabled || has(self.persistence) && self.persistence.enabled"
        " && has(self.persistence.existingClaim) && self.persistence.existingClaim != ''"
    ),
    holds=lambda spec: (
        not spec.high_availability or (spec.persistence.enabled and spec.persistence.existing_claim != "")
    ),
    message="high availability needs storage that all slurmctld pods share",
    hint="set persistence.enabled: true and persistence.existingClaim to a ReadWriteMany claim",
    path=".persistence",
)
SLURM_KEY_STAYS = Rule(
    cel="!has(oldSelf.slurmKeyRef) || has(self.slurmKeyRef) && self.slurmKeyRef.name == oldSelf.slurmKeyRef.name",
    holds=lambda spec, old: (
        old.slurm_key_ref is None
        or (spec.slurm_key_ref is not None and spec.slurm_key_ref.name == old.slurm_key_ref.name)
    ),
    message="the Secret of slurmKeyRef cannot be changed",
    hint="replace the content of the Secret to rotate the key",
    path=".slurmKeyRef",
    reason="FieldValueForbidden",
)
PERSISTENCE_STAYS = Rule(
    cel=(
        "(!has(self.persistence) || self.persistence.enabled)"
        " == (!has(oldSelf.persistence) || oldSelf.persistence.enabled)"
    ),
    holds=lambda spec, old: spec.persistence.enabled == old.persistence.enabled,
    message="persistence.enabled cannot be changed",
    hint="slurmctld would lose its state; create another Controller",
    path=".persistence",
    reason="FieldValueForbidden",
)
CLAIM_STAYS = Rule(
    cel=(
        "has(self.persistence) && !self.persistence.enabled ||"
        " (has(self.persistence) && has(self.persistence.existingClaim) ? self.persistence.existingClaim : '') =="
        " (has(oldSelf.persistence) && has(oldSelf.persistence.existingClaim) ? oldSelf.persistence.existingClaim : '')"
    ),
    holds=lambda spec, old: (
        not spec.persistence.enabled or spec.persistence.existing_claim == old.persistence.existing_claim
    ),
    message="persistence.existingClaim cannot be changed",
    hint="slurmctld would lose its state; create another Controller",
    path=".persistence",
    reason="FieldValueForbidden",
)


class ControllerSpec(KeyReferences):
    """What a cluster should look like."""

    rules: ClassVar[tuple[Rule, ...]] = (
        NEEDS_SLURM_KEY,
        NEEDS_JWT_KEY,
        NEEDS_EXTERNAL_CONFIG,
        HA_NEEDS_CLAIM,
        SLURM_KEY_STAYS,
        JWT_KEY_STAYS,
        PERSISTENCE_STAYS,
        CLAIM_STAYS,
    )

    cluster_name: OrDefault[Annotated[str, checked(CLUSTER_NAME, maxLength=CLUSTER_NAME_LIMIT)]] = ""
    """Slurm ClusterName; empty means <namespace>_<name>. Cannot be changed later."""
    accounting_ref: LocalObjectReference | None = None
    """Accounting to report to; absent means that jobs are not recorded."""
    ha: HighAvailability | None = None
    """Standby daemons; needs a claim that several pods can write."""
    slurmctld: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the generated slurmctld container; must give the image."""
    inplace_reconfigure: Defaulted[bool] = False
    """Apply configuration changes with `scontrol reconfigure` instead of restarting the pod."""
    reconfigure: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the reconfigure sidecar."""
    logfile: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the log sidecar; must give the image."""
    template: OrDefault[PodTemplate] = PodTemplate()
    """What to add to the slurmctld pods."""
    extra_conf: OrDefault[Text] = ""
    """Lines to add to slurm.conf."""
    config_file_refs: FileRefs = ()
    """ConfigMaps whose files are put beside slurm.conf, such as gres.conf or topology.yaml."""
    prolog_script_refs: FileRefs = ()
    """ConfigMaps whose files run on the workers before a job."""
    epilog_script_refs: FileRefs = ()
    """ConfigMaps whose files run on the workers after a job."""
    prolog_slurmctld_script_refs: FileRefs = ()
    """ConfigMaps whose files run beside slurmctld before a job."""
    epilog_slurmctld_script_refs: FileRefs = ()
    """ConfigMaps whose files run beside slurmctld after a job."""
    persistence: OrDefault[Persistence] = Persistence()
    """Where slurmctld keeps its state."""
    service: OrDefault[ServiceSpec] = ServiceSpec()
    """What to change in the Service that clients use."""
    metrics: OrDefault[Metrics] = Metrics()
    """Metrics that slurmctld serves."""

    @property
    def high_availability(self) -> bool:
        return self.ha is not None and self.ha.enabled

    @property
    def replicas(self) -> int:
        """How many slurmctld pods."""
        return 1 + min(self.ha.backups, MOST_BACKUPS) if self.ha is not None and self.ha.enabled else 1

    @property
    def accounting_name(self) -> str:
        """Name of the Accounting, or nothing."""
        return self.accounting_ref.name if self.accounting_ref is not None else ""

    @property
    def script_refs(self) -> tuple[LocalObjectReference, ...]:
        """Every ConfigMap that holds prolog or epilog scripts."""
        return (
            *self.prolog_script_refs,
            *self.epilog_script_refs,
            *self.prolog_slurmctld_script_refs,
            *self.epilog_slurmctld_script_refs,
        )


class ControllerStatus(Status):
    """What the operator last observed of the cluster."""

    config_hash: OrDefault[str] = ""
    """Hash of the configuration that the cluster should run, keys left out."""
    delivered_config_hash: OrDefault[str] = ""
    """Hash of the configuration that slurmctld has accepted last; equal to configHash once a change is in force."""


CLUSTER_NAME_STAYS = Rule(
    # A rule cannot see the namespace, so that spelling the default out is allowed by its ending alone.
    cel=(
        "!has(self.spec) || !has(oldSelf.spec) ||"
        " [has(self.spec.clusterName) ? self.spec.clusterName : ''].all(now,"
        " [has(oldSelf.spec.clusterName) ? oldSelf.spec.clusterName : ''].all(was, now == was"
        " || was == '' && now.endsWith('_' + self.metadata.name)"
        " || now == '' && was.endsWith('_' + self.metadata.name)))"
    ),
    holds=lambda new, old: new.cluster_name == old.cluster_name,
    message="clusterName cannot be changed",
    hint="state and accounting records carry it; create another Controller",
    path=".spec",
    reason="FieldValueForbidden",
)


class Controller(Object):
    """A Slurm cluster: slurmctld and the configuration of all its daemons."""

    rules: ClassVar[tuple[Rule, ...]] = (CLUSTER_NAME_STAYS,)

    spec: OrDefault[ControllerSpec] = ControllerSpec()
    """What the cluster should look like."""
    status: OrDefault[ControllerStatus] = ControllerStatus()
    """What the operator last observed."""

    @property
    def cluster_name(self) -> str:
        """Slurm ClusterName in force."""
        return self.spec.cluster_name or names.cluster_name(self.metadata.namespace, self.metadata.name)


CONTROLLER: Kind[Controller] = Kind(
    type=Controller,
    plural="controllers",
    short_names=("slurmctld",),
    columns=(READY, STATUS, AGE, WAITING),
)
