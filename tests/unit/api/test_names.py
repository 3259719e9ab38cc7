"""Names that other programs match byte for byte: spelt out here a second time, so that no refactoring moves them."""

from slurm_operator.api import names


def test_what_node_health_tools_rely_on() -> None:
    assert names.CONDITION_NODE_DRAIN == "SlurmNodeStateDrain"
    assert names.POD_CONDITION_PREFIX == "SlurmNodeState"
    assert names.REASON_PREFIX == "slurm-operator: "
    assert names.ANNOTATION_NODE_CORDON_REASON == "nodeset.slinky.slurm.net/node-cordon-reason"
    assert names.LABEL_POD_HOSTNAME == "nodeset.slinky.slurm.net/pod-hostname"


def test_states_become_conditions() -> None:
    assert [names.POD_CONDITION_PREFIX + state for state in names.POD_BASE_STATES + names.POD_FLAG_STATES] == [
        "SlurmNodeStateAllocated",
        "SlurmNodeStateDown",
        "SlurmNodeStateError",
        "SlurmNodeStateFuture",
        "SlurmNodeStateIdle",
        "SlurmNodeStateMixed",
        "SlurmNodeStateUnknown",
        "SlurmNodeStateCompleting",
        "SlurmNodeStateDrain",
        "SlurmNodeStateFail",
        "SlurmNodeStateInvalid",
        "SlurmNodeStateInvalidReg",
        "SlurmNodeStateMaintenance",
        "SlurmNodeStateNotResponding",
        "SlurmNodeStateUndrain",
    ]


def test_labels_and_annotations() -> None:
    spelt = {value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
    assert spelt >= {
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
        "slinky.slurm.net/cluster",
        "controller.slinky.slurm.net/active",
        "nodeset.slinky.slurm.net/pod-name",
        "nodeset.slinky.slurm.net/pod-index",
        "nodeset.slinky.slurm.net/pod-hostname",
        "nodeset.slinky.slurm.net/pod-protect",
        "nodeset.slinky.slurm.net/scaling-mode",
        "controller.kubernetes.io/hash",
        "nodeset.slinky.slurm.net/pod-cordon",
        "nodeset.slinky.slurm.net/pod-deletion-cost",
        "nodeset.slinky.slurm.net/pod-deadline",
        "nodeset.slinky.slurm.net/node-cordon-reason",
        "nodeset.slinky.slurm.net/hostname-override",
        "topology.slinky.slurm.net/spec",
        "features.slinky.slurm.net/spec",
        "kubectl.kubernetes.io/default-container",
        "kubectl.kubernetes.io/last-applied-configuration",
        "slinky.slurm.net/slurm-key-hash",
        "slinky.slurm.net/jwt-key-hash",
        "slinky.slurm.net/slurm-config-hash",
        "slinky.slurm.net/slurmdbd-conf-hash",
        "slinky.slurm.net/sshd-conf-hash",
        "slinky.slurm.net/sssd-conf-hash",
        "slinky.slurm.net/ssh-host-keys-hash",
    }


def test_finalizer_and_taint() -> None:
    assert names.FINALIZER_RESERVATION == "nodeset.slinky.slurm.net/reservation"
    assert names.TAINT_WORKER == "nodeset.slinky.slurm.net/worker"


def test_event_reasons_of_existing_dashboards() -> None:
    spelt = {value for name, value in vars(names).items() if name.startswith("EVENT_")}
    expected = """
        SyncFailed CreateSucceeded CreateFailed PatchFailed DeleteSucceeded DeleteFailed SyncFinalizerFailed ScalingUp
        ScalingDown NodeCordon SlurmNodeNotRegistered DefunctSlurmNodePruned RollingUpdate ControllerRefFailed
        FailedDaemonPod SucceededDaemonPod HostnameMismatch ConflictingController SuccessfulCreate FailedCreate
        SuccessfulUpdate FailedUpdate SuccessfulDelete FailedDelete
    """
    assert {*expected.split(), "Scheduled Update"} <= spelt


def test_object_names() -> None:
    assert names.controller("a") == "a-controller"
    assert names.controller_internal("a") == "a-controller-internal"
    assert names.controller_pod("a", 1) == "a-controller-1"
    assert names.controller_claim("a", 0) == "statesave-a-controller-0"
    assert names.config("a") == "a-config"
    assert names.accounting("a") == "a-accounting"
    assert names.restapi("a") == "a-restapi"
    assert names.ssh_config("a") == "a-ssh-config"
    assert names.ssh_host_keys("a") == "a-ssh-host-keys"
    assert names.worker_pod("a", 7, 3) == "a-007"
    assert names.worker_pod("a", 7, 2**31) == "a-0000000000000007"
    assert names.worker_claim("scratch", "a", "007") == "scratch-a-007"
    assert names.revision("a", "5d8f") == "a-5d8f"
    assert names.workers_service("a") == "slurm-workers-a"
    assert names.workers_budget("a") == "slurm-workers-pdb-a"
    assert names.token_secret("a", "bob") == "a-jwt-bob"
    assert names.reservation("a") == "SlurmOperatorMaint-a"
    assert names.cluster_name("ns", "a") == "ns_a"
    assert names.selector_text("slurmd", "a") == "app.kubernetes.io/instance=a,app.kubernetes.io/name=slurmd"
