"""Worker pods: identity, arguments, resources, placement, claims and revisions."""

from typing import Any

import pytest

from slurm_operator.api import NodeSet, names
from slurm_operator.desired.revision import controller_revision, revision_data, revision_hash
from slurm_operator.desired.worker import (
    Slot,
    WorkerFacts,
    node_slot,
    ordinal_slot,
    ssh_config,
    worker_claims,
    worker_pod,
    worker_template,
)
from slurm_operator.desired.workers import workers_objects
from slurm_operator.kube.resource import Manifest
from tests.unit.desired import examples

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CLAIMS = "volumeClaimTemplates: [{metadata: {name: scratch, labels: {a: b}}, spec: {accessModes: [ReadWriteOnce]}}]\n"


def template_of(nodeset: NodeSet, **facts: Any) -> Manifest:
    return worker_template(nodeset, WorkerFacts(controller=examples.controller(), **facts))


def pod_of(nodeset: NodeSet, slot: Slot | None = None, revision: str = "") -> Any:
    return worker_pod(nodeset, template_of(nodeset), slot or ordinal_slot(nodeset, 0), revision, "uid-budget")


def slurmd_of(nodeset: NodeSet) -> Any:
    return pod_of(nodeset)["spec"]["containers"][0]


def test_template() -> None:
    """scenario 38"""
    pod = pod_of(examples.nodeset())
    slurmd = pod["spec"]["containers"][0]
    assert slurmd["args"] == [
        "-Z",
        "--conf-server",
        "slurm-controller.slurm:6817",
        "--conf",
        "'Features=slinky'",
        "${SLINKY_TOPOLOGY:+--conf 'Features=slinky'\" Topology=$SLINKY_TOPOLOGY\"}",
    ]
    assert slurmd["startupProbe"] == {
        "httpGet": {"path": "/livez", "port": "slurmd"},
        "periodSeconds": 1,
        "failureThreshold": 60,
    }
    assert slurmd["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert slurmd["securityContext"]["privileged"] is True
    assert "slurm-operator: " in slurmd["lifecycle"]["preStop"]["exec"]["command"][2]
    assert pod["spec"]["subdomain"] == "slurm-workers-slurm"
    assert pod["spec"]["dnsConfig"]["searches"] == ["slurm-workers-slurm.slurm.svc.cluster.local"]
    assert pod["spec"]["tolerations"][0]["key"] == names.TAINT_WORKER
    assert pod["metadata"]["annotations"][names.ANNOTATION_DEFAULT_CONTAINER] == "slurmd"


Limit = str | tuple[str, str]
"""A value, or the resource and the divisor of a reference."""


@pytest.mark.parametrize(
    ("extra", "cpus", "memory"),
    [
        ("", "2", "2048"),
        ("slurmd: {image: x}\n", ("limits.cpu", "1"), ("limits.memory", "1Mi")),
        ("slurmd: {image: x}\ntemplate: {spec: {resources: {limits: {cpu: 3, memory: 1G}}}}\n", "3", "953"),
        (
            """
slurmd: {image: x, resources: {limits: {cpu: 1}}}
template: {spec: {resources: {limits: {cpu: 8, memory: 1Gi}}}}
""",
            "1",
            "1024",
        ),
        ("slurmd: {image: x, resources: {limits: {memory: 1Gi, cpu: null}}}\n", ("limits.cpu", "1"), "1024"),
        (
            "slurmd: {image: x, resources: {limits: {cpu: 0, memory: null}}}\n",
            ("limits.cpu", "1"),
            ("limits.memory", "1Mi"),
        ),
    ],
)
def test_resources_of_the_container_come_before_those_of_the_pod(extra: str, cpus: Limit, memory: Limit) -> None:
    """scenario 38; where neither has a limit, that of a LimitRange counts, which only Kubernetes knows."""
    env = {entry["name"]: entry for entry in slurmd_of(examples.nodeset(extra))["env"]}

    def limit(name: str) -> Limit:
        field = env[name].get("valueFrom", {}).get("resourceFieldRef")
        return (field["resource"], field["divisor"]) if field else str(env[name]["value"])

    assert (limit("POD_CPUS"), limit("POD_MEMORY")) == (cpus, memory)
    unlimited = [name for name, value in (("cpu", cpus), ("memory", memory)) if isinstance(value, tuple)]
    assert env.get("POD_UNLIMITED", {}).get("value", "").split() == unlimited


@pytest.mark.parametrize(
    "extra",
    [
        "slurmd: {image: x, env: [{name: POD_CPUS, value: '4'}], resources: null}\n",
        """
slurmd: {image: x, resources: null}
template: {spec: {containers: [{name: slurmd, env: [{name: POD_CPUS, value: '4'}]}]}}
""",
    ],
    ids=["slurmd", "template"],
)
def test_a_size_that_the_user_sets_needs_no_limit(extra: str) -> None:
    """The image leaves out only sizes that Kubernetes would make up."""
    env = {entry["name"]: entry for entry in slurmd_of(examples.nodeset(extra))["env"]}
    assert env["POD_CPUS"] == {"name": "POD_CPUS", "value": "4"}
    assert env["POD_UNLIMITED"]["value"] == "memory"


def test_wishes_of_the_user() -> None:
    """scenario 39"""
    nodeset = examples.nodeset(
        "slurmd: {image: x, args: [-vvv], securityContext: {privileged: false},"
        " readinessProbe: {exec: {command: [a]}}}\n"
        "template: {spec: {containers: [{name: side, image: y}], tolerations: [{key: gpu}]}}\n"
    )
    pod = pod_of(nodeset)
    slurmd, side = pod["spec"]["containers"]
    assert slurmd["args"][-1] == "-vvv"
    assert slurmd["securityContext"]["privileged"] is False
    assert slurmd["readinessProbe"] == {"exec": {"command": ["a"]}}
    assert side["name"] == "side"
    silent = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [toleration["key"] for toleration in pod["spec"]["tolerations"]] == [names.TAINT_WORKER, *silent, "gpu"]


def test_ordinal_pods() -> None:
    nodeset = examples.nodeset("ordinalPadding: 3\n")
    pod = pod_of(nodeset, ordinal_slot(nodeset, 7), "abc")
    assert pod["metadata"]["name"] == "slurm-worker-slinky-007"
    assert pod["spec"]["hostname"] == "slinky-007"
    labels = pod["metadata"]["labels"]
    assert labels[names.LABEL_POD_NAME] == "slurm-worker-slinky-007"
    assert labels[names.LABEL_POD_INDEX] == "007"
    assert labels[names.LABEL_POD_HOSTNAME] == "slinky-007"
    assert labels[names.LABEL_SCALING_MODE] == "StatefulSet"
    assert labels[names.LABEL_CLUSTER] == "slurm"
    assert labels[names.LABEL_REVISION_HASH] == "abc"
    assert pod["metadata"]["ownerReferences"][0]["controller"] is True
    assert "nodeName" not in pod["spec"]


def test_without_a_hostname_the_pod_name_is_the_node_name() -> None:
    nodeset = examples.nodeset("template: {}\n")
    assert ordinal_slot(nodeset, 1).hostname == "slurm-worker-slinky-1"
    assert slurmd_of(nodeset)["args"][4] == "'Features=slurm-worker-slinky'"


def test_daemon_pods() -> None:
    """scenario 31"""
    nodeset = examples.nodeset(
        "scalingMode: DaemonSet\n"
        "template: {spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
        " [{topologyKey: zone}]}}}}\n"
    )
    pod = pod_of(nodeset, node_slot(nodeset, "node1.example.com"))
    assert pod["metadata"]["name"] == "slurm-worker-slinky-node1.example.com"
    assert pod["spec"]["hostname"] == "node1"
    assert "nodeName" not in pod["spec"]
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1.example.com"]}]}]
    anti = pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    assert [term["topologyKey"] for term in anti] == ["kubernetes.io/hostname", "zone"]
    assert names.LABEL_POD_INDEX not in pod["metadata"]["labels"]
    assert names.LABEL_REVISION_HASH not in pod["metadata"]["labels"]
    tolerated = {toleration["key"] for toleration in pod["spec"]["tolerations"]}
    assert {"node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"} <= tolerated


def test_names_after_nodes_are_valid_and_never_look_like_ordinals() -> None:
    nodeset = examples.nodeset()
    assert node_slot(nodeset, "n1", "override").hostname == "override"
    assert node_slot(nodeset, "7").name == "slurm-worker-slinky-node-7"
    long = node_slot(nodeset, "a" * 60 + ".example.com")
    assert len(long.name) <= 63
    assert long == node_slot(nodeset, "a" * 60 + ".example.com")


def test_oversubscribed_nodes_take_several_workers() -> None:
    """scenario 32"""
    assert "affinity" not in pod_of(examples.nodeset("oversubscribeNode: true\n"))["spec"]


def test_a_pinned_pod_goes_to_its_node() -> None:
    nodeset = examples.nodeset("oversubscribeNode: true\n")
    affinity = pod_of(nodeset, ordinal_slot(nodeset, 0, "node-9"))["spec"]["affinity"]["nodeAffinity"]
    assert affinity[REQUIRED]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-9"]


def test_a_template_serves_many_pods() -> None:
    nodeset = examples.nodeset(CLAIMS)
    template = template_of(nodeset)
    pods = [worker_pod(nodeset, template, ordinal_slot(nodeset, i, f"n{i}"), "", "uid-budget") for i in range(2)]
    assert [pod["spec"]["hostname"] for pod in pods] == ["slinky-0", "slinky-1"]
    assert "hostname" not in template["spec"] or template["spec"]["hostname"] == "slinky-"
    assert template == template_of(nodeset)


def test_claims() -> None:
    nodeset = examples.nodeset(CLAIMS + "template: {spec: {hostname: s-, volumes: [{name: scratch, emptyDir: {}}]}}\n")
    slot = ordinal_slot(nodeset, 3)
    (claim,) = worker_claims(nodeset, slot, [{"uid": "x"}])
    assert claim["metadata"]["name"] == "scratch-slurm-worker-slinky-3"
    assert claim["metadata"]["labels"] == {"a": "b", **names.selector("slurmd", "slurm-worker-slinky")}
    assert claim["metadata"]["ownerReferences"] == [{"uid": "x"}]
    volumes = [volume for volume in pod_of(nodeset, slot)["spec"]["volumes"] if volume["name"] == "scratch"]
    assert volumes == [{"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch-slurm-worker-slinky-3"}}]
    assert worker_claims(nodeset, node_slot(nodeset, "n1"))[0]["metadata"]["name"] == "scratch-slurm-worker-slinky-n1"


def test_a_claim_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"metadata\.name"):
        worker_claims(examples.nodeset("volumeClaimTemplates: [{spec: {}}]\n"), Slot("a", "b"))


def test_ssh_brings_its_port_files_and_configuration() -> None:
    extra = "ssh: {enabled: true, sssdConfRef: {name: sssd, key: sssd.conf}, extraSshdConfig: Banner none}\n"
    nodeset = examples.nodeset(extra)
    config = ssh_config(nodeset)
    assert config is not None
    assert config["data"]["sshd_config"].endswith("Banner none\n")
    assert {"name": "ssh", "containerPort": 22, "protocol": "TCP"} in slurmd_of(nodeset)["ports"]
    mounted = {mount["mountPath"] for mount in slurmd_of(nodeset)["volumeMounts"]}
    assert {"/etc/ssh/sshd_config", "/etc/sssd/sssd.conf"} <= mounted
    assert ssh_config(examples.nodeset()) is None


def test_external_slurmctld_is_the_conf_server() -> None:
    """scenario 188"""
    external = examples.controller("external: true\nexternalConfig: {host: ctl.example.com, port: 7000}\n")
    template = worker_template(examples.nodeset(), WorkerFacts(controller=external))
    assert template["spec"]["containers"][0]["args"][2] == "ctl.example.com:7000"


def test_a_worker_has_two_owners() -> None:
    """The NodeSet controls it; the budget does not block its own deletion, and nothing owns the budget."""
    nodeset = examples.nodeset()
    controller, keeper = pod_of(nodeset)["metadata"]["ownerReferences"]
    assert (controller["uid"], controller["controller"]) == (nodeset.metadata.uid, True)
    budget = names.workers_budget("slurm")
    assert keeper == {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "name": budget, "uid": "uid-budget"}


def test_shared_objects_have_no_owner() -> None:
    service, budget = workers_objects("slurm", "slurm")
    for manifest in (service, budget):
        assert "ownerReferences" not in manifest["metadata"]
    assert service["spec"]["selector"] == {names.LABEL_APP: "slurmd", names.LABEL_CLUSTER: "slurm"}
    assert budget["spec"]["selector"]["matchLabels"][names.LABEL_POD_PROTECT] == "true"


@pytest.mark.parametrize(
    "extra",
    [
        "slurmd: {image: new}\n",
        "extraConf: RealMemory=1\n",
        "ordinalPadding: 2\n",
        "oversubscribeNode: true\n",
        "template: {spec: {hostname: other-}}\n",
        "logfile: {image: new}\n",
        "ssh: {enabled: true, sssdConfRef: {name: a, key: b}}\n",
    ],
)
def test_what_pods_cannot_follow_makes_a_new_revision(extra: str) -> None:
    assert revision_hash(revision_data(examples.nodeset(extra))) != revision_hash(revision_data(examples.nodeset()))


@pytest.mark.parametrize("extra", ["replicas: 9\n", "partition: {enabled: true}\n", "minReadySeconds: 3\n"])
def test_everything_else_does_not(extra: str) -> None:
    assert revision_hash(revision_data(examples.nodeset(extra))) == revision_hash(revision_data(examples.nodeset()))


def test_revisions_can_be_found_by_our_selector() -> None:
    nodeset = examples.nodeset()
    revision = controller_revision(nodeset, 3)
    digest = revision_hash(revision_data(nodeset))
    assert revision["metadata"]["name"] == f"slurm-worker-slinky-{digest}"
    assert names.selector("slurmd", "slurm-worker-slinky").items() <= revision["metadata"]["labels"].items()
    assert revision["metadata"]["labels"][names.LABEL_REVISION_HASH] == digest
    assert revision_hash(revision_data(nodeset), 1) != digest


def test_a_protected_worker_outlives_a_silent_kubelet() -> None:
    """Kubernetes evicts after five minutes otherwise, and no disruption budget applies to that."""
    for mode in ("StatefulSet", "DaemonSet"):
        tolerations = pod_of(examples.nodeset(f"scalingMode: {mode}\n"))["spec"]["tolerations"]
        forever = [t["key"] for t in tolerations if t["effect"] == "NoExecute" and "tolerationSeconds" not in t]
        assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} <= set(forever)
    unprotected = pod_of(examples.nodeset("workloadDisruptionProtection: false\n"))["spec"]["tolerations"]
    assert [toleration["key"] for toleration in unprotected] == [names.TAINT_WORKER]


def test_a_worker_says_that_its_slurmctld_runs_elsewhere() -> None:
    facts = WorkerFacts(controller=examples.controller("external: true\nexternalConfig: {host: slurm.example.com}\n"))
    template = worker_template(examples.nodeset(""), facts)
    assert template["metadata"]["annotations"][names.ANNOTATION_EXTERNAL] == "true"
    assert names.ANNOTATION_EXTERNAL not in pod_of(examples.nodeset(""))["metadata"]["annotations"]
