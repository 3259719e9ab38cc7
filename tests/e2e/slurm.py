"""A Slurm cluster on the stage that the operator runs, asked in a line or two."""

import json
from typing import Any

import msgspec
import yaml

from slurm_local.recipes import project
from slurm_operator.cli.keys import key_secret
from tests.e2e.stage import Cluster, eventually

KINDS = ("controller/slurm", "accounting/slurm", "restapi/slurm", "loginset/login", "nodeset/small", "nodeset/big")

HOME = {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}


class Slurm:
    """One cluster in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.excused: set[str] = set()
        """Jobs that a test itself cancels, holds, has preempted or has fail."""

    @property
    def has_accounting(self) -> bool:
        return "accountingRef" in self.get("controller", "slurm")["spec"]

    # Making it

    def create(self) -> None:
        """The example, with fresh keys; returns when everything is ready. One that an earlier run kept is replaced."""
        kubectl = self.cluster.kubectl
        kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--timeout=120s", timeout=150)
        self.kubectl("create", "namespace", self.namespace)
        self.apply(key_secret("slurm-keys", self.namespace))
        text = (project() / "examples/cluster.yaml").read_text()
        self.apply(*(_shared_nodes(document) for document in yaml.safe_load_all(text) if document))
        for kind in KINDS:
            self.wait_ready(kind)

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.cluster.apply(self.namespace, *manifests)

    def nodeset(self, name: str, replicas: int, template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        """A NodeSet of small workers with /home, several of which fit on a node, with a partition of its name."""
        limits = {"cpu": "1", "memory": "256Mi"}
        return {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": name},
            "spec": {
                "controllerRef": {"name": "slurm"},
                "replicas": replicas,
                "oversubscribeNode": True,
                "slurmd": {
                    "image": "localhost/slurm-operator/slurmd:26.05",
                    "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": limits},
                    "volumeMounts": [{"name": "home", "mountPath": "/home"}],
                },
                "logfile": {"image": "localhost/slurm-operator/slurm:26.05"},
                "partition": {"enabled": True, "config": "State=UP MaxTime=UNLIMITED"},
                "template": {"spec": {"terminationGracePeriodSeconds": 5, "volumes": [HOME], **(template or {})}},
                **spec,
            },
        }

    # Asking it

    def kubectl(self, *arguments: str, timeout: float = 60) -> str:
        place = () if arguments[:2] == ("create", "namespace") else ("-n", self.namespace)
        return self.cluster.kubectl(*arguments[:1], *place, *arguments[1:], timeout=timeout)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.get(self.namespace, kind, name)

    def login(self, *command: str, timeout: float = 60) -> str:
        """What a command prints on the login pod."""
        return self.cluster.kubectl(
            "exec", "-n", self.namespace, "deploy/login", "-c", "login", "--", *command, timeout=timeout
        ).strip()

    def submit(self, *options: str, wrap: str = "sleep 600") -> str:
        return self.login("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", wrap)

    def cancel(self, job: str) -> None:
        self.excused.add(job.partition("_")[0])
        self.login("scancel", job)

    def job_state(self, job: str) -> str:
        """RUNNING, PENDING ...; once it is over, what the accounting says."""
        state = self.login("squeue", "-h", "-j", job, "-o", "%T", "--states=all")
        return state or self.login("sacct", "-n", "-X", "-P", "-j", job, "-o", "State")

    def node_state(self, name: str) -> str:
        """Slurm's state of a node in capital letters, empty if it knows no such node."""
        return self.login("sinfo", "-h", "-N", "-n", name, "-o", "%T").split("\n")[0].upper()

    def node(self, name: str) -> dict[str, Any]:
        found = json.loads(self.login("scontrol", "show", "node", name, "--json"))
        return dict(found["nodes"][0])

    def nodes(self, partition: str) -> list[str]:
        return sorted(self.login("sinfo", "-h", "-N", "-p", partition, "-o", "%N").split())

    def pods(self, nodeset: str) -> dict[str, dict[str, Any]]:
        """Worker pods that are not on their way out, by name."""
        selector = f"app.kubernetes.io/instance={nodeset},app.kubernetes.io/name=slurmd"
        found = self.cluster.kubectl.json("get", "pods", "-n", self.namespace, "-l", selector)["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def condition(self, kind: str, name: str, condition: str) -> dict[str, Any]:
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == condition), {})

    def events(self, kind: str, name: str) -> list[dict[str, Any]]:
        query = f"regarding.kind={kind},regarding.name={name}"
        found = self.cluster.kubectl.json(
            "get", "events.events.k8s.io", "-n", self.namespace, "--field-selector", query
        )
        return list(found["items"])

    # Waiting for it

    def wait_ready(self, resource: str, timeout: int = 180) -> None:
        """Ready for the spec as it is now, not as it was."""
        kind, name = resource.split("/")

        def is_ready() -> bool:
            generation = self.get(kind, name)["metadata"]["generation"]
            found = self.condition(kind, name, "Ready")
            return found.get("status") == "True" and found.get("observedGeneration") == generation

        eventually(f"{resource} is ready", is_ready, timeout=timeout, pause=0.5)

    def wait_state(self, node: str, *states: str, timeout: float = 60) -> None:
        eventually(f"{node} is {' or '.join(states)}", lambda: self.node_state(node) in states, timeout, pause=0.5)

    def wait_job(self, job: str, *states: str, timeout: float = 60) -> None:
        eventually(f"job {job} is {' or '.join(states)}", lambda: self.job_state(job) in states, timeout, pause=0.5)

    def scale(self, nodeset: str, replicas: int) -> None:
        self.kubectl("scale", "nodeset", nodeset, f"--replicas={replicas}")

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", msgspec.json.encode(change).decode())


def _shared_nodes(manifest: dict[str, Any]) -> dict[str, Any]:
    """Lets workers of other NodeSets onto the same Kubernetes node, but not two of the same."""
    if manifest["kind"] != "NodeSet":
        return manifest
    same = {"matchLabels": {"app.kubernetes.io/instance": manifest["metadata"]["name"]}}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": same}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spec = manifest["spec"]
    template = {"spec": {**spec["template"]["spec"], "affinity": affinity}}
    return {**manifest, "spec": {**spec, "oversubscribeNode": True, "template": template}}
