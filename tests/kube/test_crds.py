"""The definitions on a real API server: the same table, defaults, immutability, scaling, columns, merging."""

import http.client
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_local.apiserver import ApiServer
from slurm_operator.admission.defaults import admitted
from slurm_operator.admission.validate import load, validate
from slurm_operator.admission.validate_rules import rule_problems
from slurm_operator.admission.validate_schema import schema_problems
from slurm_operator.api import KINDS, Kind, Object
from slurm_operator.api.crd import definition, render_crds, schema
from slurm_operator.api.names import GROUP, VERSION
from tests.unit.admission.cases import CASES
from tests.unit.admission.examples import BY_NAME, Case, Manifest, manifest
from tests.unit.admission.fuzz import JUNK, broken

pytestmark = pytest.mark.kube


class Answer:
    def __init__(self, status: int, body: Manifest, warnings: list[str]) -> None:
        self.status = status
        self.body = body
        self.warnings = warnings

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def fields(self) -> set[str]:
        """Places that a refusal points at; the server adds one without a place when it left its rules aside."""
        causes = self.body.get("details", {}).get("causes", [])
        return {cause["field"].lstrip(".") for cause in causes} - {"<nil>"}

    @property
    def text(self) -> str:
        return str(self.body.get("message", ""))


class Server:
    """Plain requests, so that nothing but the API server has a say."""

    def __init__(self, api_server: ApiServer) -> None:
        context = ssl.create_default_context(cafile=str(api_server.ca))
        context.load_cert_chain(api_server.cert, api_server.key)
        self._connection = http.client.HTTPSConnection(str(urlsplit(api_server.url).netloc), context=context)

    def send(
        self,
        method: str,
        path: str,
        body: Manifest | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        headers = {"Content-Type": content, "Accept": accept}
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        answer = json.loads(text) if text.startswith("{") else {"message": text}
        return Answer(response.status, answer, response.headers.get_all("Warning") or [])

    def close(self) -> None:
        self._connection.close()


def path(kind: Kind[Object], namespace: str, name: str = "", options: str = "") -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.plural}" + (f"/{name}" if name else "") + options


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> Iterator[Server]:
    """With the definitions installed and served."""
    connection = Server(api_server)
    for kind in KINDS:
        made = connection.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
        assert made.ok or made.status == 409, made.text
        assert made.warnings == []
    _kubectl(api_server, "wait", "crd", *(f"{kind.plural}.{GROUP}" for kind in KINDS), "--for=condition=Established")
    yield connection
    connection.close()


def _kubectl(api_server: ApiServer, *arguments: str, stdin: str = "") -> str:
    return subprocess.run(
        api_server.kubectl(*arguments), input=stdin, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdict(server: Server, case: Case) -> None:
    """scenarios 139, 145, 158, 173, 180, 189, 190: the API server alone says what the offline check says."""
    kind = BY_NAME[case.kind]
    answer = _judged(server, kind, case)
    assert answer.ok == (case.verdict != "refused"), answer.text
    if answer.ok:
        assert load(kind, answer.body).metadata.name == "slurm"
    else:
        assert answer.fields == {problem.path for problem in validate(kind, case.new, case.old)}, answer.text


def _judged(server: Server, kind: Kind[Object], case: Case) -> Answer:
    if case.old is None:
        return server.send("POST", path(kind, "default", options="?dryRun=All"), case.new)
    stored = server.send("POST", path(kind, "default"), case.old)
    assert stored.ok, stored.text
    try:
        version = {"resourceVersion": stored.body["metadata"]["resourceVersion"]}
        new = {**case.new, "metadata": case.new["metadata"] | version}
        return server.send("PUT", path(kind, "default", "slurm", "?dryRun=All"), new)
    finally:
        assert server.send("DELETE", path(kind, "default", "slurm")).ok


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fuzzed_objects_get_the_verdict_of_the_offline_check(server: Server, kind: Kind[Object]) -> None:
    good = [case.new for case in CASES if case.kind == kind.name and case.verdict == "accepted"]
    steps = st.lists(st.integers(0, 9), min_size=1, max_size=6)

    @settings(max_examples=int(os.environ.get("FUZZ_CASES", "10000")) // 100)
    @given(st.sampled_from(good), steps, JUNK)
    def run(base: Manifest, steps: list[int], junk: Any) -> None:
        new = {**base, "spec": broken(base["spec"], steps, junk)}
        answer = server.send("POST", path(kind, "default", options="?dryRun=All"), new)
        stored = admitted(kind, new)
        places = {problem.path for problem in schema_problems(schema(kind), stored)}
        if not places:
            places = {problem.path for problem in rule_problems(load(kind, stored), None)}
        assert answer.ok == (not places), f"{places} {answer.text}"

    run()


def _in(namespace: str, obj: Manifest) -> Manifest:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_defaults_appear_as_offline(server: Server, namespace: str, kind: Kind[Object]) -> None:
    written = _in(namespace, manifest(kind.name))
    stored = server.send("POST", path(kind, namespace), written)
    assert stored.body["spec"] == admitted(kind, written)["spec"]


def test_defaults_of_a_nodeset(server: Server, namespace: str) -> None:
    written = manifest("NodeSet", {"updateStrategy": {"rollingUpdate": {}, "scheduledUpdate": {}}})
    spec = server.send("POST", path(BY_NAME["NodeSet"], namespace), _in(namespace, written)).body["spec"]
    assert spec == {
        "controllerRef": {"name": "slurm"},
        "replicas": 1,
        "scalingMode": "StatefulSet",
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%"},
            "scheduledUpdate": {"duration": "30m"},
        },
        "revisionHistoryLimit": 0,
        "ordinalPadding": 0,
        "pinToNode": False,
        "workloadDisruptionProtection": True,
        "pruneSlurmNodeRecords": "Never",
        "oversubscribeNode": False,
    }


def test_free_parts_keep_everything(server: Server, namespace: str) -> None:
    pod = {"containers": [{"name": "a", "future": {"x": [1, None, {"y": None}]}}], "hostname": "gpu-"}
    written = manifest("NodeSet", {"template": {"spec": pod}, "slurmd": {"image": "a", "unheardOf": [False, 0, ""]}})
    body = server.send("POST", path(BY_NAME["NodeSet"], namespace), _in(namespace, written)).body
    assert body["spec"]["template"]["spec"] == pod
    typed: Any = load(BY_NAME["NodeSet"], body)
    assert typed.spec.template.spec == pod
    assert typed.spec.slurmd == written["spec"]["slurmd"]


def test_references_stay_in_their_namespace(server: Server, namespace: str) -> None:
    """scenario 190"""
    written = manifest("NodeSet", {"controllerRef": {"name": "slurm", "namespace": "elsewhere"}})
    body = server.send("POST", path(BY_NAME["NodeSet"], namespace), _in(namespace, written)).body
    assert body["spec"]["controllerRef"] == {"name": "slurm"}


@pytest.mark.parametrize("name", ["NodeSet", "LoginSet"])
def test_scaling(api_server: ApiServer, server: Server, namespace: str, name: str) -> None:
    kind = BY_NAME[name]
    assert server.send("POST", path(kind, namespace), _in(namespace, manifest(name))).ok
    status = {"status": {"replicas": 2, "selector": "app.kubernetes.io/instance=slurm", "nodeSetHash": "x"}}
    merge = "application/merge-patch+json"
    assert server.send("PATCH", path(kind, namespace, "slurm/status"), status, merge).ok
    _kubectl(api_server, "-n", namespace, "scale", kind.singular, "slurm", "--replicas=5")
    scale = server.send("GET", path(kind, namespace, "slurm/scale")).body
    assert scale["spec"]["replicas"] == 5
    assert scale["status"] == {"replicas": 2, "selector": "app.kubernetes.io/instance=slurm"}
    target = f"{kind.plural}.{GROUP}/slurm"
    _kubectl(api_server, "-n", namespace, "autoscale", target, "--min=1", "--max=9", "--cpu=80%")
    autoscaler = json.loads(_kubectl(api_server, "-n", namespace, "get", "hpa", "slurm", "-o", "json"))
    assert autoscaler["spec"]["scaleTargetRef"] == {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": name,
        "name": "slurm",
    }


COLUMNS = {
    "Controller": "NAME READY AGE WAITING",
    "Accounting": "NAME READY AGE WAITING",
    "RestApi": "NAME READY AGE WAITING",
    "LoginSet": "NAME REPLICAS READY AGE WAITING",
    "Token": "NAME USER IAT READY AGE WAITING",
    "NodeSet": "NAME DESIRED REPLICAS UPDATED READY STATUS AGE WAITING",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_columns_and_short_names(api_server: ApiServer, server: Server, namespace: str, kind: Kind[Object]) -> None:
    assert server.send("POST", path(kind, namespace), _in(namespace, manifest(kind.name))).ok
    for word in (kind.plural, kind.singular, *kind.short_names):
        header, row = _kubectl(api_server, "-n", namespace, "get", f"{word}").splitlines()
        assert header.split() == COLUMNS[kind.name].split()
        assert row.startswith("slurm ")


WIDE = "NAME DESIRED REPLICAS UPDATED READY IDLE ALLOCATED DOWN DRAIN SLURM STATUS AGE WAITING"


def test_wide_columns(api_server: ApiServer, server: Server, namespace: str) -> None:
    assert server.send("POST", path(BY_NAME["NodeSet"], namespace), _in(namespace, manifest("NodeSet"))).ok
    header = _kubectl(api_server, "-n", namespace, "get", "nss", "-o", "wide").splitlines()[0]
    assert " ".join(header.split()) == WIDE


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_row_says_whether_it_is_ready_and_what_it_waits_for(
    server: Server, namespace: str, kind: Kind[Object]
) -> None:
    """The table that the API server itself makes, as `kubectl get` asks for it."""
    assert server.send("POST", path(kind, namespace), _in(namespace, manifest(kind.name))).ok
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [
        {"type": "Ready", "status": "Unknown", "reason": "SlurmUnknown", "message": "", **since},
        {"type": "Progressing", "status": "True", "reason": "Working", "message": "job 7 to end", **since},
        {"type": "SlurmReachable", "status": "False", "reason": "NoAnswer", "message": "", **since},
    ]
    required = {"NodeSet": {"nodeSetHash": "a", "selector": "b"}, "LoginSet": {"selector": "b"}}.get(kind.name, {})
    status = {"status": {"conditions": conditions, **required}}
    merge = "application/merge-patch+json"
    assert server.send("PATCH", path(kind, namespace, "slurm/status"), status, merge).ok
    table = server.send("GET", path(kind, namespace), accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    columns = zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
    row = {column["name"]: cell for column, cell in columns if column["priority"] == 0}
    assert row["WAITING"] == "job 7 to end"
    if kind.name == "NodeSet":  # its READY is the number of ready workers
        assert row["STATUS"] == "SlurmUnknown"
    else:
        assert row["READY"] == "Unknown"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_explain_reads_well(api_server: ApiServer, server: Server, kind: Kind[Object]) -> None:
    text = _kubectl(api_server, "explain", f"{kind.singular}.spec", "--recursive=false")
    assert "<empty>" not in text
    assert "DESCRIPTION:" in text


def test_server_side_apply_merges_conditions_by_type(server: Server, namespace: str) -> None:
    kind = BY_NAME["Controller"]
    assert server.send("POST", path(kind, namespace), _in(namespace, manifest("Controller"))).ok
    for manager, condition in (("one", "Ready"), ("two", "Degraded")):
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "status": {
                "conditions": [
                    {
                        "type": condition,
                        "status": "True",
                        "reason": "AsExpected",
                        "message": "",
                        "lastTransitionTime": "2030-01-01T00:00:00Z",
                    }
                ]
            },
        }
        applied = server.send(
            "PATCH",
            path(kind, namespace, "slurm/status", f"?fieldManager={manager}"),
            body,
            "application/apply-patch+yaml",
        )
        assert applied.ok, applied.text
    assert [condition["type"] for condition in applied.body["status"]["conditions"]] == ["Ready", "Degraded"]


def test_server_side_apply_replaces_references_as_a_whole(server: Server, namespace: str) -> None:
    kind = BY_NAME["Controller"]
    assert server.send("POST", path(kind, namespace), _in(namespace, manifest("Controller"))).ok
    for names in (["a", "b"], ["b"]):
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "spec": {"configFileRefs": [{"name": name} for name in names]},
        }
        applied = server.send(
            "PATCH",
            path(kind, namespace, "slurm", "?fieldManager=one&force=true"),
            body,
            "application/apply-patch+yaml",
        )
        assert applied.ok, applied.text
        assert [ref["name"] for ref in applied.body["spec"]["configFileRefs"]] == names


def test_kubectl_applies_all_definitions_again(api_server: ApiServer, server: Server) -> None:
    text = render_crds()
    assert [doc["metadata"]["name"] for doc in yaml.safe_load_all(text)] == [f"{kind.plural}.{GROUP}" for kind in KINDS]
    printed = _kubectl(api_server, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    assert len(printed.splitlines()) == len(KINDS)


def _eventually(server: Server, place: str, written: Manifest) -> Answer:
    """A new definition is served a moment after it was accepted."""
    deadline = time.monotonic() + 20
    while not (answer := server.send("POST", place, written)).ok and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answer.ok, answer.text
    return answer


def _until_refused(server: Server, place: str, written: Manifest) -> None:
    """A changed definition takes effect a moment after it was accepted."""
    other = {**written, "metadata": {**written["metadata"], "name": "another"}}
    deadline = time.monotonic() + 20
    while server.send("POST", f"{place}?dryRun=All", other).ok:
        assert time.monotonic() < deadline, "the stricter rules never took effect"
        time.sleep(0.05)


def test_an_object_of_laxer_times_can_still_be_scaled_and_deleted(server: Server, namespace: str) -> None:
    """Rules that came later stop nobody from changing other fields, the status, or finalizers."""
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kind = BY_NAME["NodeSet"]
    lax = json.loads(json.dumps(definition(kind)).replace("NodeSet", "LaxSet").replace("nodeset", "laxset"))
    lax["spec"]["names"]["shortNames"] = []
    strict = json.loads(json.dumps(lax))
    schema = lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for name in ("extraConf", "replicas"):
        del schema[name]["x-kubernetes-validations"]
    made = server.send("POST", crd, lax)
    assert made.ok, made.text
    try:
        place = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/laxsets"
        written = _in(namespace, {**manifest("NodeSet", {"extraConf": "not options"}), "kind": "LaxSet"})
        written["metadata"]["finalizers"] = ["example.com/hold"]
        _eventually(server, place, written)
        live = server.send("GET", f"{crd}/laxsets.{GROUP}").body
        live["spec"]["versions"] = strict["spec"]["versions"]
        assert server.send("PUT", f"{crd}/laxsets.{GROUP}", live).ok
        merge = "application/merge-patch+json"
        _until_refused(server, place, written)
        assert server.send("PATCH", f"{place}/slurm", {"spec": {"replicas": 3}}, merge).ok
        status = {"status": {"selector": "a=b", "nodeSetHash": "x"}}
        assert server.send("PATCH", f"{place}/slurm/status", status, merge).ok
        assert server.send("DELETE", f"{place}/slurm").ok
        freed = server.send("PATCH", f"{place}/slurm", {"metadata": {"finalizers": None}}, merge)
        assert freed.ok, freed.text
    finally:
        server.send("DELETE", f"{crd}/laxsets.{GROUP}")
