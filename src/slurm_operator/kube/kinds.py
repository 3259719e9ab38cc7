"""The Kubernetes kinds that the operator reads, each reduced to the fields it reads, and where they live."""

from typing import Any

from msgspec import field
from msgspec.structs import force_setattr

from slurm_operator.api import names
from slurm_operator.kube.model import (
    ChildMeta,
    Condition,
    Model,
    ObjectMeta,
    intern_fields,
    shared,
    shared_conditions,
    shared_each,
)
from slurm_operator.kube.resource import Resource


class Waiting(Model):
    reason: str = ""
    message: str = ""


class Terminated(Model):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Running(Model):
    started_at: str = ""


RUNNING = Running()


class ContainerState(Model):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Model):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodSpec(Model):
    node_name: str = ""
    hostname: str = ""
    host_network: bool = False
    subdomain: str = ""

    def __post_init__(self) -> None:
        intern_fields(self, "node_name", "hostname", "subdomain")


class PodStatus(Model):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(name="podIP", default="")
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    slurmd_started_at: str = ""
    """Start time of the container `slurmd` while it runs. The statuses themselves drop it, so that pods share them."""

    def __post_init__(self) -> None:
        intern_fields(self, "phase", "reason", "message", "start_time")
        for container in self.container_statuses:
            if container.state.running is not None and container.state.running.started_at:
                if container.name == names.APP_SLURMD:
                    force_setattr(self, "slurmd_started_at", container.state.running.started_at)
                force_setattr(container.state, "running", RUNNING)
        force_setattr(self, "conditions", shared_conditions(self.conditions))
        force_setattr(self, "init_container_statuses", shared_each(self.init_container_statuses))
        force_setattr(self, "container_statuses", shared_each(self.container_statuses))


class Pod(Model):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Model):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Model):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "taints", shared_each(self.taints))


class Quantities(Model):
    cpu: str = ""
    memory: str = ""


class NodeStatus(Model):
    conditions: tuple[Condition, ...] = ()
    capacity: Quantities = Quantities()
    allocatable: Quantities = Quantities()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", shared_conditions(self.conditions))
        force_setattr(self, "capacity", shared(self.capacity))
        force_setattr(self, "allocatable", shared(self.allocatable))


class Node(Model):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServicePort(Model):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    node_port: int = 0


class ServiceSpec(Model):
    type: str = "ClusterIP"
    cluster_ip: str = field(name="clusterIP", default="")
    selector: dict[str, str] = field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()


class LoadBalancerIngress(Model):
    ip: str = ""
    hostname: str = ""


class LoadBalancer(Model):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Model):
    load_balancer: LoadBalancer = LoadBalancer()


class Service(Model):
    metadata: ChildMeta = ChildMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointSlice(Model):
    metadata: ChildMeta = ChildMeta()


class ConfigMap(Model):
    metadata: ChildMeta = ChildMeta()
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, bytes] = field(default_factory=dict)
    immutable: bool = False


class Secret(Model):
    """`data` holds the decoded values."""

    metadata: ChildMeta = ChildMeta()
    type: str = ""
    data: dict[str, bytes] = field(default_factory=dict)
    immutable: bool = False


class TemplateMeta(Model):
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class Template(Model):
    metadata: TemplateMeta = TemplateMeta()


class WorkloadSpec(Model):
    replicas: int = 1
    template: Template = Template()


class StatefulSetSpec(WorkloadSpec):
    service_name: str = ""
    pod_management_policy: str = ""
    volume_claim_templates: tuple[dict[str, Any], ...] = ()


class WorkloadStatus(Model):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class StatefulSetStatus(WorkloadStatus):
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Model):
    metadata: ChildMeta = ChildMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class Deployment(Model):
    metadata: ChildMeta = ChildMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ClaimSpec(Model):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(Model):
    phase: str = ""


class PersistentVolumeClaim(Model):
    metadata: ChildMeta = ChildMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class PodDisruptionBudgetStatus(Model):
    observed_generation: int = 0
    disruptions_allowed: int = 0


class PodDisruptionBudget(Model):
    metadata: ChildMeta = ChildMeta()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ControllerRevision(Model):
    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: Any = None


class LeaseSpec(Model):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Model):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Model):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(Model):
    count: int = 0


class Event(Model):
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    regarding: ObjectReference = ObjectReference()
    series: EventSeries | None = None
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None


class NamespaceStatus(Model):
    phase: str = ""


class Namespace(Model):
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class WebhookClient(Model):
    ca_bundle: bytes = b""


class Webhook(Model):
    name: str = ""
    client_config: WebhookClient = WebhookClient()


class WebhookConfiguration(Model):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class CustomResourceDefinitionStatus(Model):
    # The server really writes null here while the definition is brand new.
    conditions: tuple[Condition, ...] | None = None


class CustomResourceDefinition(Model):
    metadata: ChildMeta = ChildMeta()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()


PODS = Resource("", "v1", "Pod", "pods", Pod)
NODES = Resource("", "v1", "Node", "nodes", Node, namespaced=False)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", Namespace, namespaced=False)
SERVICES = Resource("", "v1", "Service", "services", Service)
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", ConfigMap)
SECRETS = Resource("", "v1", "Secret", "secrets", Secret)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", PersistentVolumeClaim)
STATEFUL_SETS = Resource("apps", "v1", "StatefulSet", "statefulsets", StatefulSet)
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", Deployment)
CONTROLLER_REVISIONS = Resource("apps", "v1", "ControllerRevision", "controllerrevisions", ControllerRevision)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", EndpointSlice)
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases", Lease)
EVENTS = Resource("events.k8s.io", "v1", "Event", "events", Event)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    WebhookConfiguration,
    namespaced=False,
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    WebhookConfiguration,
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    CustomResourceDefinition,
    namespaced=False,
)
