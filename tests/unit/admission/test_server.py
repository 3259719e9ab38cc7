"""Reviews over TLS, as the API server sends them, and what it must never get back: nothing, or a traceback."""

import asyncio
from base64 import b64decode

import aiohttp
import msgspec
import pytest

from slurm_operator.admission.certs import Pair, issue, new_authority
from slurm_operator.admission.certs_tls import ServingContext
from slurm_operator.admission.review import Request, Verdict, answer
from slurm_operator.admission.reviewer import Reviewer, default_path, validate_path
from slurm_operator.admission.server import ReviewMetrics, serve_reviews
from slurm_operator.api import KINDS, Kind, Object
from slurm_operator.errors import UserError
from slurm_operator.kube import Client
from slurm_operator.runtime.metrics import Metrics
from tests.fakes.apiserver import FakeApiServer, Fault, Hang, Refuse
from tests.unit.admission.cases import CASES
from tests.unit.admission.conftest import HOST, NOW, Webhook, client_context, put, review
from tests.unit.admission.examples import BY_NAME, Case, Manifest, manifest

NODESET, CONTROLLER = BY_NAME["NodeSet"], BY_NAME["Controller"]
SHARED: Manifest = {
    "ha": {"enabled": True},
    "persistence": {"existingClaim": "shared"},
    "configFileRefs": [{"name": "files"}],
}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_the_answer_has_the_version_of_the_question(webhook: Webhook, kind: Kind[Object], version: str) -> None:
    status, text = await webhook.post(validate_path(kind), review(manifest(kind.name), version=version))
    assert status == 200
    found = msgspec.json.decode(text)
    assert found["apiVersion"] == f"admission.k8s.io/{version}"
    assert (found["response"]["uid"], found["response"]["allowed"]) == ("705ab4f5-6393-11e8-b7cc-42010a800002", True)


def _stands_alone(case: Case) -> bool:
    spec = case.new.get("spec")
    return not isinstance(spec, dict) or not (spec.get("configFileRefs") or spec.get("ha"))


@pytest.mark.parametrize("case", [*filter(_stands_alone, CASES)], ids=str)
async def test_verdict(client: Client, case: Case) -> None:
    """scenarios 139, 145, 180, 189, 190: the review says what the rules say, at the same place."""
    handle = Reviewer(client).routes()[validate_path(BY_NAME[case.kind])]
    response = msgspec.json.decode((await answer(review(case.new, case.old), handle)).body)["response"]
    assert response["allowed"] == (case.verdict == "accepted")
    if not response["allowed"]:
        causes = response["status"]["details"]["causes"]
        assert case.path in [cause["field"] for cause in causes]
        assert all(cause["message"] for cause in causes)


async def test_a_refusal_says_what_and_where_and_what_to_write(webhook: Webhook) -> None:
    response = await webhook.validated(manifest("NodeSet", {"replicas": -1}))
    assert not response["allowed"]
    assert response["status"]["message"] == "spec.replicas: must not be negative: write 0 or more"
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert response["status"]["details"] == {
        "group": "slinky.slurm.net",
        "kind": "NodeSet",
        "name": "slurm",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "field": "spec.replicas",
                "message": "must not be negative: write 0 or more",
            }
        ],
    }


async def test_a_refusal_names_all_problems(webhook: Webhook) -> None:
    response = await webhook.validated(manifest("NodeSet", {"replicas": -1, "extraConf": "x"}))
    assert sorted(cause["field"] for cause in response["status"]["details"]["causes"]) == [
        "spec.extraConf",
        "spec.replicas",
    ]
    assert response["status"]["message"].count("\n* spec.") == 2


async def test_immutable_fields(webhook: Webhook) -> None:
    """scenario 189"""
    response = await webhook.validated(manifest("NodeSet", {"controllerRef": {"name": "other"}}), manifest("NodeSet"))
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.controllerRef"]


async def test_a_spec_that_does_not_change_is_not_judged_again(webhook: Webhook) -> None:
    """Else one stricter rule would keep finalizers on objects that were accepted before it."""
    old = manifest("NodeSet", {"replicas": -1})
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    assert (await webhook.validated(new, old))["allowed"]


async def test_deletion_is_never_held_up(webhook: Webhook) -> None:
    body = review(None, manifest("NodeSet", {"replicas": -1}), operation="DELETE")
    assert (await webhook.response(validate_path(NODESET), body))["allowed"]


async def test_warnings_are_short_lines(webhook: Webhook) -> None:
    service = {"spec": {"externalIPs": ["10.0.0.1"]}}
    new = manifest("Controller", {"service": service, "x" * 300: "", "a\nb": ""})
    response = await webhook.validated(new)
    assert response["allowed"]
    assert (
        "spec.service.spec.externalIPs: is dropped: it lets a Service take over foreign addresses"
        in (response["warnings"])
    )
    assert all(len(warning) <= 256 and "\n" not in warning for warning in response["warnings"])


async def test_defaults_are_added_and_nothing_else(webhook: Webhook) -> None:
    response = await webhook.response(default_path(NODESET), review(manifest("NodeSet", {"slurmd": {"future": 1}})))
    assert response["patchType"] == "JSONPatch"
    patch = msgspec.json.decode(b64decode(response["patch"]))
    assert {"op": "add", "path": "/spec/replicas", "value": 1} in patch
    assert {operation["op"] for operation in patch} == {"add"}
    assert all(operation["path"].startswith("/spec/") for operation in patch)


async def test_what_is_complete_is_not_patched(webhook: Webhook) -> None:
    response = await webhook.response(default_path(BY_NAME["RestApi"]), review(manifest("RestApi", {"replicas": 2})))
    assert "patch" not in response


async def test_other_namespaces_are_not_judged(client: Client) -> None:
    handle = Reviewer(client, ["here"]).routes()[validate_path(NODESET)]
    broken = manifest("NodeSet", {"replicas": -1})
    for namespace, allowed in (("here", False), ("there", True)):
        found = msgspec.json.decode((await answer(review(broken, namespace=namespace), handle)).body)
        assert found["response"]["allowed"] == allowed


@pytest.mark.parametrize(
    ("data", "modes", "fields"),
    [
        ({"gres.conf": ""}, ["ReadWriteMany"], []),
        ({"slurm.conf": ""}, ["ReadWriteMany"], ["spec.configFileRefs[0].name"]),
        ({}, ["ReadWriteOnce"], ["spec.persistence.existingClaim"]),
        (None, ["ReadWriteMany"], ["spec.configFileRefs[0].name"]),
    ],
)
async def test_facts_from_the_cluster(
    server: FakeApiServer, webhook: Webhook, data: dict[str, str] | None, modes: list[str], fields: list[str]
) -> None:
    if data is not None:
        put(server, "ConfigMap", "files", data=data)
    put(server, "PersistentVolumeClaim", "shared", spec={"accessModes": modes})
    response = await webhook.validated(manifest("Controller", SHARED))
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    assert (response["allowed"], [cause["field"] for cause in causes]) == (not fields, fields)


@pytest.mark.parametrize("action", [Hang(), Refuse(403, "Forbidden", "configmaps is forbidden"), Refuse(500)], ids=str)
async def test_what_cannot_be_read_is_a_warning(server: FakeApiServer, webhook: Webhook, action: Hang | Refuse) -> None:
    server.faults.add(Fault(action, resource="configmaps", times=None))
    response = await webhook.validated(manifest("Controller", {"configFileRefs": [{"name": "files"}]}))
    assert response["allowed"]
    assert any("ConfigMap files was not checked" in warning for warning in response["warnings"])


async def test_names_that_are_no_names_are_not_asked_for(server: FakeApiServer, webhook: Webhook) -> None:
    """A reference must not make the webhook read some other path of the API server."""
    response = await webhook.validated(manifest("Controller", {"configFileRefs": [{"name": "../secrets/a"}]}))
    assert not response["allowed"]
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not an AdmissionReview"),
        (b"{", "not an AdmissionReview"),
        (b"\xff\xfe", "not an AdmissionReview"),
        (b"[" * 100_000, "not an AdmissionReview"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "not nothing of no version"),
        (review(manifest("NodeSet"), version="v7"), "not AdmissionReview of admission.k8s.io/v7"),
        (review(manifest("NodeSet"), uid=""), "no request with a uid"),
        (review(manifest("NodeSet"), uid=7), "$.request.uid"),
        (review(manifest("NodeSet")).replace(b'"object":{', b'"object":7,"x":{'), "$.request.object"),
    ],
)
async def test_garbage_gets_a_clear_400(webhook: Webhook, body: bytes, says: str) -> None:
    status, text = await webhook.post(validate_path(NODESET), body)
    assert (status, says in text) == (400, True), text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (None, "object"),
        (manifest("Token"), "kind"),
        ({**manifest("NodeSet"), "apiVersion": "slinky.slurm.net/v1"}, "apiVersion"),
        ({}, "apiVersion"),
    ],
)
async def test_a_review_that_came_to_the_wrong_place(webhook: Webhook, new: Manifest | None, field: str) -> None:
    response = await webhook.response(validate_path(NODESET), review(new))
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [field]


async def test_an_object_of_endless_depth(webhook: Webhook) -> None:
    deep: Manifest = {}
    for _ in range(400):
        deep = {"a": deep}
    response = await webhook.validated(manifest("NodeSet", {"slurmd": {"x": deep}}))
    assert "uid" in response


async def test_what_is_not_served(webhook: Webhook) -> None:
    assert (await webhook.post("/validate-something", b""))[0] == 404
    async with webhook.session.get(webhook.url + validate_path(NODESET)) as response:
        assert response.status == 405


async def test_a_mistake_of_ours_is_a_500_without_details() -> None:
    async def fails(request: Request) -> Verdict:
        raise ZeroDivisionError("secret")

    found = await answer(review(manifest("NodeSet")), fails)
    assert found.status == 500
    assert b"secret" not in found.body


async def test_requests_are_counted() -> None:
    metrics, counted = Metrics(), ReviewMetrics()
    metrics.registry.register(counted)
    counted.observe("/validate-x", 200, 0.001)
    text = metrics.render().decode()
    assert 'controller_runtime_webhook_requests_total{code="200",webhook="/validate-x"} 1.0' in text
    assert 'controller_runtime_webhook_latency_seconds_count{webhook="/validate-x"} 1.0' in text


async def test_certificates_rotated_under_load_drop_no_request(webhook: Webhook) -> None:
    """Old connections stay, new ones meet the new certificate; nobody is turned away."""
    other = new_authority(NOW)
    trusted = client_context(webhook.authority.certificate, other.certificate)
    path, body = webhook.url + validate_path(NODESET), review(manifest("NodeSet"))
    rotated = asyncio.Event()

    async def load(session: aiohttp.ClientSession) -> int:
        answered = 0
        while not rotated.is_set():
            async with session.post(path, data=body) as response:
                assert response.status == 200
                answered += 1
        return answered

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted, force_close=True)) as fresh,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as kept,
    ):
        loads = [asyncio.create_task(load(session)) for session in (fresh, fresh, kept, kept)]
        for number in range(20):
            assert webhook.serving.use(issue((webhook.authority, other)[number % 2], [HOST], NOW))
            await asyncio.sleep(0.02)
        rotated.set()
        assert all(await asyncio.gather(*loads))


async def test_new_connections_see_the_new_certificate(webhook: Webhook) -> None:
    other = new_authority(NOW)
    webhook.serving.use(issue(other, [HOST], NOW))
    connector = aiohttp.TCPConnector(ssl=client_context(webhook.authority.certificate))
    async with aiohttp.ClientSession(connector=connector) as distrustful:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await distrustful.post(webhook.url)


@pytest.mark.parametrize("field", ["certificate", "key"])
async def test_a_broken_pair_changes_nothing(webhook: Webhook, field: str) -> None:
    """As when the two files are read just between being replaced."""
    good = issue(webhook.authority, [HOST], NOW)
    foreign = issue(webhook.authority, [HOST], NOW)
    mixed = Pair(foreign.certificate, good.key) if field == "certificate" else Pair(good.certificate, b"none")
    with pytest.raises(UserError, match="cannot be used"):
        webhook.serving.use(mixed)
    connector = aiohttp.TCPConnector(ssl=client_context(webhook.authority.certificate))
    url, body = webhook.url + validate_path(NODESET), review(manifest("NodeSet"))
    async with aiohttp.ClientSession(connector=connector) as fresh, fresh.post(url, data=body) as response:
        assert response.status == 200


async def test_the_same_pair_is_not_loaded_twice(webhook: Webhook) -> None:
    pair = issue(webhook.authority, [HOST], NOW)
    assert [webhook.serving.use(pair), webhook.serving.use(pair)] == [True, False]


async def test_an_address_that_is_taken(webhook: Webhook) -> None:
    address = webhook.url.removeprefix("https://").replace(HOST, "127.0.0.1")
    with pytest.raises(UserError, match="cannot listen"):
        async with serve_reviews(address, {}, ServingContext()):
            pytest.fail("it must not come so far")
