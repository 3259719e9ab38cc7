"""Every name that other programs rely on, spelled once: labels, annotations, conditions, taints, events, objects.

Health checkers, topology tools and dashboards match these strings byte for byte, so they never change.
"""

from typing import Final

GROUP: Final = "slinky.slurm.net"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# --- Labels -------------------------------------------------------------------------------------------------------

LABEL_APP: Final = "app.kubernetes.io/name"
"""The daemon a pod runs: one of the APP_* values."""
LABEL_SERVICE: Final = "kubernetes.io/service-name"
"""On an EndpointSlice: whose endpoints these are."""
LABEL_SLICE_MANAGER: Final = "endpointslice.kubernetes.io/managed-by"
"""On an EndpointSlice: who writes it, so that nobody else does."""
SLICE_MANAGER: Final = "slurm-operator"
"""Value of that label: us."""
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
"""Name of the custom resource that a child belongs to."""
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
"""Role within the cluster: one of the COMPONENT_* values."""
LABEL_CLUSTER: Final = f"{GROUP}/cluster"
"""Name of the Controller whose cluster a worker belongs to."""
LABEL_ACTIVE: Final = f"controller.{GROUP}/active"
"""`true` on the one slurmctld pod that answers clients; the client Service selects on it."""
LABEL_POD_NAME: Final = f"nodeset.{GROUP}/pod-name"
"""Name of a worker pod, so that a selector can pick exactly one."""
LABEL_POD_INDEX: Final = f"nodeset.{GROUP}/pod-index"
"""Zero-padded ordinal of a worker pod in StatefulSet mode."""
LABEL_POD_HOSTNAME: Final = f"nodeset.{GROUP}/pod-hostname"
"""Hostname of a worker pod, which is its Slurm node name."""
LABEL_POD_PROTECT: Final = f"nodeset.{GROUP}/pod-protect"
"""`true` while a worker is busy: the PodDisruptionBudget of the cluster selects on it."""
LABEL_SCALING_MODE: Final = f"nodeset.{GROUP}/scaling-mode"
"""Scaling mode that a worker pod was created under."""
LABEL_REVISION_HASH: Final = "controller.kubernetes.io/hash"
"""Hash of the NodeSet revision that a worker pod or a ControllerRevision carries."""

TRUE: Final = "true"
"""The only spelling of yes in label and annotation values."""

APP_SLURMCTLD: Final = "slurmctld"
APP_SLURMDBD: Final = "slurmdbd"
APP_SLURMRESTD: Final = "slurmrestd"
APP_SLURMD: Final = "slurmd"
APP_LOGIN: Final = "login"
APP_TOKEN: Final = "token"  # noqa: S105 - the value of a label
"""Not a daemon: marks the Secrets that Tokens write."""
APP_KEYRING: Final = "keyring"
"""Nor is this: marks the Secrets that carry the auth/slurm keys to the daemons."""

COMPONENT_CONTROLLER: Final = "controller"
COMPONENT_ACCOUNTING: Final = "accounting"
COMPONENT_RESTAPI: Final = "restapi"
COMPONENT_WORKER: Final = "worker"
COMPONENT_LOGIN: Final = "login"

# --- Annotations --------------------------------------------------------------------------------------------------

ANNOTATION_POD_CORDON: Final = f"nodeset.{GROUP}/pod-cordon"
"""`true` on a worker pod asks for its Slurm node to be drained."""
ANNOTATION_POD_DELETION_COST: Final = f"nodeset.{GROUP}/pod-deletion-cost"
"""Integer by which users steer scale-in: lower is deleted first, absent or invalid counts as 0."""
ANNOTATION_POD_DEADLINE: Final = f"nodeset.{GROUP}/pod-deadline"
"""RFC 3339 time by which the last running job of a worker must have ended."""
ANNOTATION_NODE_CORDON_REASON: Final = f"nodeset.{GROUP}/node-cordon-reason"
"""On a Kubernetes Node: the text to use as drain reason when the Node is cordoned."""
ANNOTATION_HOSTNAME_OVERRIDE: Final = f"nodeset.{GROUP}/hostname-override"
"""On a Kubernetes Node: the hostname, and Slurm node name, of its worker in DaemonSet mode."""
ANNOTATION_EXTERNAL: Final = f"nodeset.{GROUP}/external-slurmctld"
"""On a worker whose slurmctld runs elsewhere, and so does not end with the Controller."""
ANNOTATION_REPORT_WAITING: Final = f"nodeset.{GROUP}/report-waiting-after"
"""On a NodeSet: duration, as in 30m, after which jobs that are waited for are reported by a condition."""
ANNOTATION_WAITING_DEGRADES: Final = f"nodeset.{GROUP}/waiting-is-degraded"
"""`true` on a NodeSet asks for the condition Degraded as well when jobs have been waited for that long."""
ANNOTATION_UNRESERVED: Final = f"controller.{GROUP}/unreserved-partitions"
"""On a Controller: comma list of partitions of which an administrator says that no `AllowedPartitions` names them."""
ANNOTATION_TOPOLOGY: Final = f"topology.{GROUP}/spec"
"""Slurm topology of a Kubernetes Node, copied to the worker pod that runs there."""
ANNOTATION_FEATURES: Final = f"features.{GROUP}/spec"
"""On a Kubernetes Node: comma list that becomes Slurm node features with the prefix `k8s/`."""
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Container that kubectl picks for logs and exec."""
ANNOTATION_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own memory of an object: never copied to children."""
ANNOTATION_SLURM_KEY_HASH: Final = f"{GROUP}/slurm-key-hash"
"""Hash of the auth/slurm keys that a pod should see: restarts slurmctld and slurmdbd, hurries the kubelet elsewhere."""
ANNOTATION_JWT_KEY_HASH: Final = f"{GROUP}/jwt-key-hash"
"""Hash of the auth/jwt key Secret; a change restarts the daemon."""
ANNOTATION_SLURM_CONFIG_HASH: Final = f"{GROUP}/slurm-config-hash"
"""Hash of the generated Slurm configuration; absent when changes are applied in place."""
ANNOTATION_SLURMDBD_CONF_HASH: Final = f"{GROUP}/slurmdbd-conf-hash"
"""Hash of the generated slurmdbd.conf."""
ANNOTATION_SSHD_CONF_HASH: Final = f"{GROUP}/sshd-conf-hash"
"""Hash of the generated sshd_config."""
ANNOTATION_SSSD_CONF_HASH: Final = f"{GROUP}/sssd-conf-hash"
"""Hash of the referenced sssd.conf."""
ANNOTATION_SSH_HOST_KEYS_HASH: Final = f"{GROUP}/ssh-host-keys-hash"
"""Hash of the login hosts' ssh keys."""

ANNOTATION_CONFIG_GENERATION: Final = f"{GROUP}/config-generation"
"""On a slurmctld pod: hash of the configuration that it should see; a new value makes the kubelet bring it at once."""

ANNOTATION_RING_SINCE: Final = f"{GROUP}/key-ring-since"
"""On a key ring: when its keys last changed."""
ANNOTATION_RING_SETTLED: Final = f"{GROUP}/key-ring-settled"
"""On a key ring: hash of the keys that every worker has read, so that slurmctld and slurmdbd may follow."""
ANNOTATION_RING_WAITING: Final = f"{GROUP}/key-ring-waiting"
"""On a key ring: what a rotation that takes long is waiting for."""

# --- Marks on the Slurm side --------------------------------------------------------------------------------------

REASON_PREFIX: Final = "slurm-operator: "
"""A Slurm node reason that starts so is a drain of ours; any other is somebody else's and is left alone."""
FEATURE_PREFIX: Final = "k8s/"
"""Slurm features that start so mirror the Node annotation; all others are the administrator's."""
SLURM_USER: Final = "slurm"
"""Slurm user that the operator acts as."""

# --- Conditions ---------------------------------------------------------------------------------------------------

CONDITION_READY: Final = "Ready"
"""The resource does now what its spec asks for."""
CONDITION_PROGRESSING: Final = "Progressing"
"""The operator is on its way from one state to another."""
CONDITION_DEGRADED: Final = "Degraded"
"""Something needs attention; the message says what."""
CONDITION_SLURM_REACHABLE: Final = "SlurmReachable"
"""Slurm answers the operator; while it does not, nothing is taken away."""
CONDITION_FIELDS_IGNORED: Final = "FieldsIgnored"
"""Fields are set that have no effect; the message names them. Absent if there are none."""
CONDITION_WAITING_FOR_JOBS: Final = "WaitingForJobs"
"""Jobs are waited for that have kept workers from going for long; the message names them. Absent if there are none."""
CONDITION_RESERVATION_CREATED: Final = "ReservationCreated"
"""The maintenance reservation of a scheduled update exists in Slurm."""

POD_CONDITION_PREFIX: Final = "SlurmNodeState"
"""Worker pods carry one condition per Slurm node state: this prefix and the state."""
POD_BASE_STATES: Final = ("Allocated", "Down", "Error", "Future", "Idle", "Mixed", "Unknown")
"""States of which a node has exactly one, in the order in which they are looked for."""
POD_FLAG_STATES: Final = (
    "Completing",
    "Drain",
    "Fail",
    "Invalid",
    "InvalidReg",
    "Maintenance",
    "NotResponding",
    "Undrain",
)
"""States of which a node may have any number beside its base state."""
CONDITION_NODE_DRAIN: Final = f"{POD_CONDITION_PREFIX}Drain"
"""The condition that node health tools wait for before they touch a machine."""

# --- Finalizers and taints ----------------------------------------------------------------------------------------

FINALIZER_RESERVATION: Final = f"nodeset.{GROUP}/reservation"
"""Holds a NodeSet until its maintenance reservation is gone from Slurm."""
FINALIZER_WORKERS: Final = f"nodeset.{GROUP}/workers"
"""Holds a NodeSet until its workers are drained and free of jobs."""
TAINT_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""Put on a Node by an administrator who has made sure that its machine is off."""
FINALIZER_FOREGROUND: Final = "foregroundDeletion"
"""Set by the API server for `--cascade=foreground`: the garbage collector deletes the dependents first."""
FINALIZER_ORPHAN: Final = "orphan"
"""Set by the API server for `--cascade=orphan`: the garbage collector takes the owner off the dependents first."""
TAINT_WORKER: Final = f"nodeset.{GROUP}/worker"
"""NoExecute taint that every worker pod tolerates, for Nodes set aside for Slurm."""

# --- Event reasons ------------------------------------------------------------------------------------------------

EVENT_SYNC_FAILED: Final = "SyncFailed"
"""A step of the reconciliation failed."""
EVENT_CREATE_SUCCEEDED: Final = "CreateSucceeded"
"""A child object was created."""
EVENT_CREATE_FAILED: Final = "CreateFailed"
"""A child object could not be created."""
EVENT_PATCH_FAILED: Final = "PatchFailed"
"""A child object could not be changed."""
EVENT_DELETE_SUCCEEDED: Final = "DeleteSucceeded"
"""A child object was deleted."""
EVENT_DELETE_FAILED: Final = "DeleteFailed"
"""A child object could not be deleted."""
EVENT_SYNC_FINALIZER_FAILED: Final = "SyncFinalizerFailed"
"""The NodeSet's finalizer could not be added or removed."""
EVENT_CONFIGURATION_DELIVERED: Final = "ConfigurationDelivered"
"""slurmctld has accepted a new configuration."""
EVENT_SCALING_UP: Final = "ScalingUp"
"""Worker pods are being added."""
EVENT_SCALING_DOWN: Final = "ScalingDown"
"""Worker pods are being drained and removed."""
EVENT_NODE_CORDON: Final = "NodeCordon"
"""A cordoned Kubernetes Node drains its worker."""
EVENT_SLURM_NODE_NOT_REGISTERED: Final = "SlurmNodeNotRegistered"
"""A healthy worker pod has no node record in Slurm."""
EVENT_DEFUNCT_SLURM_NODE_PRUNED: Final = "DefunctSlurmNodePruned"
"""The Slurm node record of a vanished worker was deleted."""
EVENT_ROLLING_UPDATE: Final = "RollingUpdate"
"""Workers of an old revision are being replaced."""
EVENT_WAITING_FOR_JOBS: Final = "WaitingForJobs"
"""Jobs have kept workers from going for longer than was asked to be told."""
EVENT_SCHEDULED_UPDATE: Final = "Scheduled Update"
"""Workers in the maintenance window are being replaced."""
EVENT_CONTROLLER_REF_FAILED: Final = "ControllerRefFailed"
"""The Controller named by controllerRef could not be found."""
EVENT_FAILED_DAEMON_POD: Final = "FailedDaemonPod"
"""A failed worker pod is replaced in DaemonSet mode."""
EVENT_SUCCEEDED_DAEMON_POD: Final = "SucceededDaemonPod"
"""A worker pod that ended by itself is replaced in DaemonSet mode."""
EVENT_HOSTNAME_MISMATCH: Final = "HostnameMismatch"
"""A worker pod has another hostname than its Node asks for and is replaced."""
EVENT_CONFLICTING_CONTROLLER: Final = "ConflictingController"
"""A pod of the right name belongs to somebody else."""
EVENT_SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
"""A worker pod or claim was created."""
EVENT_FAILED_CREATE: Final = "FailedCreate"
"""A worker pod or claim could not be created."""
EVENT_SUCCESSFUL_UPDATE: Final = "SuccessfulUpdate"
"""A worker pod or claim was changed."""
EVENT_FAILED_UPDATE: Final = "FailedUpdate"
"""A worker pod or claim could not be changed."""
EVENT_SUCCESSFUL_DELETE: Final = "SuccessfulDelete"
"""A worker pod or claim was deleted."""
EVENT_FAILED_DELETE: Final = "FailedDelete"
"""A worker pod or claim could not be deleted."""

# --- Ports and users ----------------------------------------------------------------------------------------------

PORT_SLURMCTLD: Final = 6817
PORT_SLURMD: Final = 6818
PORT_SLURMDBD: Final = 6819
PORT_SLURMRESTD: Final = 6820
PORT_SSH: Final = 22

UID_SLURM: Final = 401
"""User and group id of `slurm` in every image."""
UID_NOBODY: Final = 65534
"""User and group id that slurmrestd runs as."""

# --- Names of child objects ---------------------------------------------------------------------------------------

TOKEN_KEY: Final = "SLURM_JWT"  # noqa: S105 - the key of a Secret, not a secret
"""Key of the Secret that a Token writes, unless secretRef says otherwise."""


def cluster_name(namespace: str, name: str) -> str:
    """Slurm ClusterName of a Controller that does not choose one."""
    return f"{namespace}_{name}"


def controller(name: str) -> str:
    """StatefulSet, client Service and ServiceMonitor of a Controller."""
    return f"{name}-controller"


def controller_internal(name: str) -> str:
    """Headless Service that gives every slurmctld pod its DNS name."""
    return f"{name}-controller-internal"


def controller_pod(name: str, ordinal: int) -> str:
    return f"{controller(name)}-{ordinal}"


def controller_claim(name: str, ordinal: int) -> str:
    """Claim that holds the state of one slurmctld pod."""
    return f"statesave-{controller_pod(name, ordinal)}"


def config(name: str) -> str:
    """ConfigMap with the generated slurm.conf of a Controller."""
    return f"{name}-config"


def accounting(name: str) -> str:
    """StatefulSet, Service and config Secret of an Accounting."""
    return f"{name}-accounting"


def restapi(name: str) -> str:
    """Deployment and Service of a RestApi."""
    return f"{name}-restapi"


def key_ring(secret: str) -> str:
    """Secret that carries the auth/slurm keys in use, made from the one that users write."""
    return f"{secret}-ring"


def key_ring_source(ring: str) -> str:
    """The Secret that a ring is made from."""
    return ring.removesuffix("-ring")


def ssh_config(name: str) -> str:
    """ConfigMap with the sshd_config of a LoginSet or NodeSet."""
    return f"{name}-ssh-config"


def ssh_host_keys(name: str) -> str:
    """Secret with the host keys of a LoginSet."""
    return f"{name}-ssh-host-keys"


WIDEST_ORDINAL: Final = 16
"""Padding beyond this counts as this, lest one object ask for gigabytes of zeros."""


def ordinal(number: int, padding: int = 0) -> str:
    """An ordinal as names carry it."""
    return str(number).zfill(min(padding, WIDEST_ORDINAL))


def worker_pod(nodeset: str, number: int, padding: int = 0) -> str:
    """Worker pod in StatefulSet mode."""
    return f"{nodeset}-{ordinal(number, padding)}"


def worker_claim(template: str, nodeset: str, suffix: str) -> str:
    """Claim of one worker; the suffix is its padded ordinal, or its hostname in DaemonSet mode."""
    return f"{template}-{nodeset}-{suffix}"


def revision(nodeset: str, digest: str) -> str:
    """ControllerRevision of a NodeSet."""
    return f"{nodeset}-{digest}"


def workers_service(controller_name: str) -> str:
    """Headless Service that all workers of a cluster share."""
    return f"slurm-workers-{controller_name}"


def logins_service(controller_name: str) -> str:
    """Headless Service that gives the login pods of a cluster the names that srun tells slurmctld."""
    return f"slurm-logins-{controller_name}"


def logins_slice(loginset: str, family: str) -> str:
    """EndpointSlice with the login pods of one LoginSet."""
    return f"{loginset}-logins-{family.lower()}"


def workers_budget(controller_name: str) -> str:
    """PodDisruptionBudget that protects the busy workers of a cluster."""
    return f"slurm-workers-pdb-{controller_name}"


def token_secret(name: str, username: str) -> str:
    """Secret that a Token writes unless secretRef names another."""
    return f"{name}-jwt-{username}"


def reservation(nodeset: str) -> str:
    """Slurm reservation of a scheduled update."""
    return f"SlurmOperatorMaint-{nodeset}"


def selector(app: str, instance: str) -> dict[str, str]:
    """The two labels that select the pods of one custom resource."""
    return {LABEL_APP: app, LABEL_INSTANCE: instance}


def selector_text(app: str, instance: str) -> str:
    """The same selector as `status.selector` spells it for the scale subresource."""
    return f"{LABEL_INSTANCE}={instance},{LABEL_APP}={app}"
