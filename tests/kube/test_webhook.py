"""The webhook, called by a real API server: what a user of kubectl sees, and what goes on without it."""

import asyncio
import json
import ssl
import subprocess
import threading
import urllib.request
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_local.apiserver import ApiServer, free_ports
from slurm_operator.admission.reviewer import validate_path
from slurm_operator.api import KINDS, names
from slurm_operator.api.crd import render_crds
from slurm_operator.cli import parser
from slurm_operator.cli import webhook as command
from slurm_operator.cli.webhook_manifests import (
    NAME,
    WebhookOptions,
    mutating_configuration,
    validating_configuration,
    webhook_manifests,
)
from slurm_operator.kube import load
from tests.unit.admission.conftest import review
from tests.unit.admission.examples import BY_NAME, Manifest, manifest

OPTIONS = WebhookOptions("slurm-operator-webhook-test", binding=True)
NOT_THERE: Manifest = {"configFileRefs": [{"name": "not-there"}]}
"""Only the webhook knows that a ConfigMap is missing."""
TOPOLOGY = "topo-switch:s2,topo-block:b2"
Done = subprocess.CompletedProcess[str]


class Kubectl:
    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def run(self, *arguments: str, stdin: str = "") -> Done:
        words = self._server.kubectl(*arguments)
        return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=60)

    def ok(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, obj: Manifest, namespace: str, *arguments: str) -> Done:
        placed = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
        return self.run("apply", *arguments, "-f", "-", stdin=json.dumps(placed))

    def get(self, what: str, namespace: str) -> Manifest:
        found: Manifest = json.loads(self.ok("get", what, "-n", namespace, "-o", "json"))
        return found

    @contextmanager
    def namespace(self, label: str) -> Iterator[str]:
        name = f"test-{uuid.uuid4().hex[:10]}"
        self.ok("create", "namespace", name)
        self.ok("label", "namespace", name, f"{label}=yes")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        self.ok("apply", "-f", "-", stdin=json.dumps(account))
        yield name
        self.ok("delete", "namespace", name, "--wait=false")

    @contextmanager
    def registered(self, configurations: list[Manifest]) -> Iterator[None]:
        self.ok("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(configurations))
        try:
            yield
        finally:
            self.ok("delete", "-f", "-", stdin=yaml.safe_dump_all(configurations))


class Process:
    """The whole command, in a thread of its own, as nothing of the test may hold it up."""

    def __init__(self, kubeconfig: Path) -> None:
        self.port, health = free_ports(2)
        addresses = [f"--server-addr=127.0.0.1:{self.port}", f"--health-addr=127.0.0.1:{health}"]
        where = [f"--kubeconfig={kubeconfig}", f"--leader-elect-namespace={OPTIONS.namespace}"]
        self._options = parser().parse_args(["webhook", *addresses, *where])
        self._kubeconfig = str(kubeconfig)
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: self._is_ready(f"http://127.0.0.1:{health}/readyz"))

    def _run(self) -> None:
        self._loop.run_until_complete(command.serve_webhook(self._options, load(self._kubeconfig), self._stop))
        self._loop.close()

    def _is_ready(self, url: str) -> bool:
        assert self._thread.is_alive(), "it ended before it was ready"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


def until(met: Callable[[], bool], seconds: float = 30) -> None:
    """The API server tells nobody when it has noticed a new configuration."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.1)):
        if met():
            return
        pause.wait(0.1)
    pytest.fail("it did not happen in time")


def called_by_url(configuration: Manifest, port: int, label: str, name: str = NAME) -> Manifest:
    """The test's API server is not in any cluster's network; other tests of this run have namespaces without label."""
    found = deepcopy(configuration)
    found["metadata"]["name"] = name
    for webhook in found["webhooks"]:
        webhook["clientConfig"] = {"url": f"https://localhost:{port}{webhook['clientConfig']['service']['path']}"}
        webhook["namespaceSelector"]["matchExpressions"].append({"key": label, "operator": "Exists"})
    return found


@pytest.fixture(scope="module")
def kubectl(api_server: ApiServer) -> Kubectl:
    found = Kubectl(api_server)
    found.ok("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=render_crds())
    found.ok("wait", "crd", *(f"{kind.plural}.{names.GROUP}" for kind in KINDS), "--for=condition=Established")
    return found


@pytest.fixture(scope="module")
def account(api_server: ApiServer, kubectl: Kubectl) -> Path:
    """Somebody with exactly the rights that the webhook is installed with."""
    kubectl.ok("create", "namespace", OPTIONS.namespace)
    rights = [found for found in webhook_manifests(OPTIONS) if found["apiVersion"].startswith("rbac.")]
    for found in rights:
        if "subjects" in found:
            found["subjects"] = [{"kind": "User", "name": "webhook", "apiGroup": "rbac.authorization.k8s.io"}]
    kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    return api_server.kubeconfig_for("webhook", "webhook")


@pytest.fixture(scope="module")
def webhook(kubectl: Kubectl, account: Path) -> Iterator[Process]:
    """Running, registered and trusted."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEAVE_SECONDS", 0.0), ("RENEW_SECONDS", 0.2), ("CERT_DIR", "/nowhere")):
            patch.setattr(command, name, value)
        process = Process(account)
        made = [validating_configuration(OPTIONS), mutating_configuration(OPTIONS)]
        try:
            with (
                kubectl.registered([called_by_url(found, process.port, "webhook-test") for found in made]),
                kubectl.namespace("webhook-test") as namespace,
            ):
                probe = manifest("Controller", NOT_THERE)
                until(lambda: "ConfigMap not-there" in kubectl.apply(probe, namespace, "--dry-run=server").stderr)
                yield process
        finally:
            process.end()


@pytest.fixture
def judged(webhook: Process, kubectl: Kubectl) -> Iterator[str]:
    """A namespace whose objects the webhook judges."""
    with kubectl.namespace("webhook-test") as namespace:
        yield namespace


def test_a_good_object_is_accepted(kubectl: Kubectl, judged: str) -> None:
    for kind in KINDS:
        done = kubectl.apply(manifest(kind.name), judged)
        assert done.returncode == 0, done.stderr
    assert kubectl.get("nodeset/slurm", judged)["spec"]["replicas"] == 1


def test_what_a_user_reads(kubectl: Kubectl, judged: str) -> None:
    done = kubectl.apply(manifest("Controller", NOT_THERE), judged)
    assert done.returncode == 1
    told = "ConfigMap not-there does not exist: create it first, or correct the name"
    assert done.stderr.splitlines()[-1] == f'The Controller "slurm" is invalid: spec.configFileRefs[0].name: {told}'


def test_facts_are_those_of_the_object_s_own_namespace(kubectl: Kubectl, judged: str) -> None:
    """scenario 190: the ConfigMap of another namespace does not count."""
    with kubectl.namespace("webhook-test") as other:
        kubectl.ok("create", "configmap", "not-there", "-n", other)
        assert kubectl.apply(manifest("Controller", NOT_THERE), judged).returncode == 1
    kubectl.ok("create", "configmap", "not-there", "-n", judged, "--from-literal=gres.conf=a")
    assert kubectl.apply(manifest("Controller", NOT_THERE), judged).returncode == 0


def test_an_update_is_judged_like_a_creation(kubectl: Kubectl, judged: str) -> None:
    assert kubectl.apply(manifest("Controller"), judged).returncode == 0
    done = kubectl.apply(manifest("Controller", NOT_THERE), judged)
    assert "ConfigMap not-there does not exist" in done.stderr


@pytest.mark.parametrize(
    ("kind", "patch", "place"),
    [
        ("Controller", {"clusterName": "other"}, "clusterName"),
        ("Controller", {"slurmKeyRef": {"name": "other"}}, "spec.slurmKeyRef"),
        ("Controller", {"jwtKeyRef": {"name": "other"}}, "spec.jwtKeyRef"),
        ("Controller", {"persistence": {"enabled": False}}, "spec.persistence"),
        ("NodeSet", {"controllerRef": {"name": "other"}}, "spec.controllerRef"),
        ("NodeSet", {"volumeClaimTemplates": [{"metadata": {"name": "a"}}]}, "spec.volumeClaimTemplates"),
        ("LoginSet", {"controllerRef": {"name": "other"}}, "spec.controllerRef"),
    ],
)
def test_immutable_fields(
    kubectl: Kubectl, judged: str, webhook: Process, kind: str, patch: Manifest, place: str
) -> None:
    """scenarios 145, 189: the rules of the CRD refuse a change, and the webhook would too."""
    old, new = manifest(kind), manifest(kind, patch)
    assert kubectl.apply(old, judged).returncode == 0
    assert place in kubectl.apply(new, judged).stderr
    response = post(webhook, kubectl, kind, review(new, old))["response"]
    assert not response["allowed"]
    assert place in response["status"]["message"]


@pytest.mark.parametrize(
    ("kind", "patch", "place"),
    [
        ("NodeSet", {"partition": {"enabled": True, "config": "State=UP\nNodeName=x"}}, "spec.partition.config"),
        ("NodeSet", {"template": {"spec": {"hostname": "a\nb"}}}, "spec.template"),
        ("NodeSet", {"updateStrategy": {"scheduledUpdate": {"duration": "10s"}}}, "scheduledUpdate.duration"),
        ("Controller", {"clusterName": "a" * 41}, "spec.clusterName"),
    ],
)
def test_refused_by_both(
    kubectl: Kubectl, judged: str, webhook: Process, kind: str, patch: Manifest, place: str
) -> None:
    """scenarios 139, 180, 189"""
    assert place in kubectl.apply(manifest(kind, patch), judged).stderr
    response = post(webhook, kubectl, kind, review(manifest(kind, patch)))["response"]
    assert place in response["status"]["message"]


def test_warnings_are_shown(kubectl: Kubectl, judged: str) -> None:
    done = kubectl.apply(manifest("RestApi", {"service": {"spec": {"externalIPs": ["10.0.0.1"]}}}), judged)
    assert done.returncode == 0
    assert "Warning: spec.service.spec.externalIPs: is dropped" in done.stderr


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_both_versions_of_reviews(kubectl: Kubectl, webhook: Process, version: str) -> None:
    answer = post(webhook, kubectl, "NodeSet", review(manifest("NodeSet"), version=version))
    assert (answer["apiVersion"], answer["response"]["allowed"]) == (f"admission.k8s.io/{version}", True)


def test_labels_and_finalizers_change_whatever_the_spec_holds(kubectl: Kubectl, judged: str) -> None:
    kubectl.ok("create", "configmap", "not-there", "-n", judged)
    assert kubectl.apply(manifest("Controller", NOT_THERE), judged).returncode == 0
    kubectl.ok("delete", "configmap", "not-there", "-n", judged)
    kubectl.ok("label", "controllers.slinky.slurm.net/slurm", "-n", judged, "a=b")


def test_a_worker_learns_its_topology_as_it_is_bound(kubectl: Kubectl, judged: str) -> None:
    """scenario 155"""
    pods = {"gpu-0": names.APP_SLURMD, "web-0": "nginx"}
    with node(kubectl) as name:
        for pod, app in pods.items():
            create_pod(kubectl, judged, pod, app)
            assert bind(kubectl, judged, pod, name, "?dryRun=All").returncode == 0
        assert [topology(kubectl, judged, pod) for pod in pods] == [None, None]
        for pod in pods:
            done = bind(kubectl, judged, pod, name)
            assert done.returncode == 0, done.stderr
        assert [topology(kubectl, judged, pod) for pod in pods] == [TOPOLOGY, None]


def test_a_dead_webhook_stops_nobody_else(kubectl: Kubectl, webhook: Process) -> None:
    """Only new and changed specs of our kinds wait for it; labels, status, deletion and all pods go on."""
    (dead,) = free_ports(1)
    made = [validating_configuration(OPTIONS), mutating_configuration(OPTIONS)]
    with kubectl.namespace("webhook-dead") as namespace, node(kubectl) as name:
        assert kubectl.apply(manifest("NodeSet"), namespace).returncode == 0
        with kubectl.registered([called_by_url(found, dead, "webhook-dead", "dead-webhook") for found in made]):
            changed = manifest("NodeSet", {"replicas": 3})
            until(lambda: "failed calling webhook" in kubectl.apply(changed, namespace, "--dry-run=server").stderr)
            kubectl.ok("label", "nodeset/slurm", "-n", namespace, "a=b")
            merge = json.dumps({"metadata": {"finalizers": ["example.com/a"]}})
            kubectl.ok("patch", "nodeset/slurm", "-n", namespace, "--type=merge", "-p", merge)
            kubectl.ok("delete", "nodeset/slurm", "-n", namespace, "--wait=false")
            kubectl.ok("patch", "nodeset/slurm", "-n", namespace, "--type=json", "-p", REMOVE_FINALIZERS)
            create_pod(kubectl, namespace, "gpu-0", names.APP_SLURMD)
            done = bind(kubectl, namespace, "gpu-0", name)
            assert done.returncode == 0, done.stderr


def test_nothing_is_written_at_rest(kubectl: Kubectl, webhook: Process) -> None:
    before = kubectl.ok("get", "validatingwebhookconfiguration", NAME, "-o", "jsonpath={.metadata.resourceVersion}")
    checks = 5
    threading.Event().wait(checks * command.RENEW_SECONDS)
    after = kubectl.ok("get", "validatingwebhookconfiguration", NAME, "-o", "jsonpath={.metadata.resourceVersion}")
    assert before == after


REMOVE_FINALIZERS = '[{"op": "remove", "path": "/metadata/finalizers"}]'


@contextmanager
def node(kubectl: Kubectl) -> Iterator[str]:
    name = f"node-{uuid.uuid4().hex[:10]}"
    metadata = {"name": name, "annotations": {names.ANNOTATION_TOPOLOGY: TOPOLOGY}}
    kubectl.ok("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    yield name
    kubectl.ok("delete", "node", name, "--wait=false")


def create_pod(kubectl: Kubectl, namespace: str, name: str, app: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.LABEL_APP: app}},
        # Bound by the test itself, never by a scheduler that may run beside it.
        "spec": {"containers": [{"name": "a", "image": "a"}], "schedulerName": "none"},
    }
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(pod))


def bind(kubectl: Kubectl, namespace: str, pod: str, node: str, query: str = "") -> Done:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding{query}"
    return kubectl.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def topology(kubectl: Kubectl, namespace: str, pod: str) -> str | None:
    annotations: dict[str, str] = kubectl.get(f"pod/{pod}", namespace)["metadata"].get("annotations", {})
    return annotations.get(names.ANNOTATION_TOPOLOGY)


def post(webhook: Process, kubectl: Kubectl, kind: str, body: bytes) -> dict[str, Any]:
    """As the API server does, with the trust that it was given."""
    found = json.loads(kubectl.ok("get", "validatingwebhookconfiguration", NAME, "-o", "json"))
    bundle = b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
    url = f"https://localhost:{webhook.port}{validate_path(BY_NAME[kind])}"
    context = ssl.create_default_context(cadata=bundle)
    with urllib.request.urlopen(url, data=body, context=context, timeout=10) as answer:
        decoded: dict[str, Any] = json.loads(answer.read())
        return decoded
