"""The webhook's own authority: what it makes, when it makes it anew, and that all replicas agree."""

import asyncio
import datetime
import ssl
from base64 import b64encode

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from slurm_operator.admission.certs import (
    AUTHORITY_LIFE,
    AUTHORITY_RENEWAL,
    LEAF_LIFE,
    LEAF_RENEWAL,
    SETTLING,
    Keys,
    Pair,
    expiry,
    renewed,
)
from slurm_operator.admission.certs_secret import SECRET, KeySecret, inject
from slurm_operator.admission.certs_tls import ServingContext, has_pair, read_pair
from slurm_operator.errors import UserError
from slurm_operator.kube import Client
from tests.fakes.apiserver import FakeApiServer, Fault, Refuse
from tests.unit.admission.conftest import NOW, client_context, put

NAMES = ["webhook.slurm.svc", "webhook.slurm"]
DAY = datetime.timedelta(days=1)


def verified(keys: Keys, leaf: bytes, at: datetime.datetime) -> bool:
    """What a strict verifier, which wants key usage and identifiers, says."""
    trusted = Store(x509.load_pem_x509_certificates(keys.bundle))
    verifier = PolicyBuilder().store(trusted).time(at).build_server_verifier(x509.DNSName(NAMES[0]))
    try:
        verifier.verify(x509.load_pem_x509_certificate(leaf), [])
    except x509.verification.VerificationError:
        return False
    return True


def test_what_is_made_satisfies_strict_verifiers() -> None:
    keys = renewed(None, NAMES, NOW)
    assert verified(keys, keys.leaf.certificate, NOW)
    leaf = x509.load_pem_x509_certificate(keys.leaf.certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == NAMES
    strict = client_context(keys.bundle)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    assert strict.cert_store_stats()["x509_ca"] == 1


def test_nothing_is_renewed_before_its_time() -> None:
    keys = renewed(None, NAMES, NOW)
    assert renewed(keys, NAMES, NOW) is keys
    assert renewed(keys, NAMES, NOW + LEAF_LIFE - LEAF_RENEWAL - DAY) is keys
    assert Keys.from_data(keys.to_data()) == keys


def test_the_certificate_is_renewed_under_the_same_authority() -> None:
    keys = renewed(None, NAMES, NOW)
    later = NOW + LEAF_LIFE - LEAF_RENEWAL + DAY
    found = renewed(keys, NAMES, later)
    assert (found.authority, found.bundle) == (keys.authority, keys.bundle)
    assert expiry(found.leaf.certificate) > expiry(keys.leaf.certificate)
    assert verified(keys, found.leaf.certificate, later)


def test_a_new_name_needs_a_new_certificate() -> None:
    keys = renewed(None, NAMES, NOW)
    assert renewed(keys, [*NAMES, "other"], NOW).leaf != keys.leaf


def test_a_new_authority_is_trusted_before_it_signs_anything() -> None:
    """At every step both the old and the new certificate are trusted by those who read the bundle one step ago."""
    keys, at = renewed(None, NAMES, NOW), NOW
    for _ in range(8):
        at += LEAF_RENEWAL
        keys = renewed(keys, NAMES, at)
    at = NOW + AUTHORITY_LIFE - AUTHORITY_RENEWAL + DAY
    keys = renewed(renewed(keys, NAMES, at - 2 * DAY), NAMES, at - 2 * DAY)
    announced = renewed(keys, NAMES, at)
    assert announced.authority != keys.authority
    assert announced.leaf == keys.leaf
    assert verified(announced, keys.leaf.certificate, at)
    assert renewed(announced, NAMES, at) is announced

    switched = renewed(announced, NAMES, at + SETTLING)
    assert switched.leaf != keys.leaf
    assert switched.bundle == announced.bundle
    assert not verified(keys, switched.leaf.certificate, at + SETTLING)
    assert verified(announced, switched.leaf.certificate, at + SETTLING)

    settled = renewed(switched, NAMES, at + 2 * SETTLING)
    assert settled.bundle == settled.authority.certificate
    assert verified(settled, switched.leaf.certificate, at + 2 * SETTLING)
    assert renewed(settled, NAMES, at + 2 * SETTLING) is settled


def test_no_certificate_outlives_its_authority() -> None:
    assert LEAF_LIFE < AUTHORITY_RENEWAL


def test_after_a_long_absence_everything_is_made_anew() -> None:
    keys = renewed(None, NAMES, NOW)
    later = NOW + 2 * AUTHORITY_LIFE
    found = renewed(keys, NAMES, later)
    assert found.bundle == found.authority.certificate
    assert verified(found, found.leaf.certificate, later)


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_secret_is_repaired(lost: str, content: bytes) -> None:
    data = renewed(None, NAMES, NOW).to_data() | {lost: content}
    found = renewed(Keys.from_data(data), NAMES, NOW)
    found = renewed(found, NAMES, NOW + SETTLING)
    assert verified(found, found.leaf.certificate, NOW + SETTLING)
    assert ServingContext().use(found.leaf)


def test_keys_that_somebody_else_made_are_used_until_ours_are_known() -> None:
    """A Secret as the Helm chart makes it has no key of the authority."""
    foreign = renewed(None, NAMES, NOW)
    data = foreign.to_data()
    del data["ca.key"]
    found = renewed(Keys.from_data(data), NAMES, NOW)
    assert found.leaf == foreign.leaf
    assert verified(found, foreign.leaf.certificate, NOW)
    assert foreign.bundle in found.bundle


async def test_replicas_that_start_together_agree(server: FakeApiServer, client: Client) -> None:
    found = await asyncio.gather(*(KeySecret(client, "default", NAMES).keys() for _ in range(5)))
    assert len({keys.leaf.certificate for keys in found}) == 1
    assert [request.verb for request in server.requests if request.is_write and request.code < 300] == ["create"]


async def test_replicas_that_renew_together_agree(server: FakeApiServer, client: Client) -> None:
    old = renewed(None, NAMES, NOW - 300 * DAY)
    put(server, "Secret", SECRET, data={key: b64encode(value).decode() for key, value in old.to_data().items()})
    found = await asyncio.gather(*(KeySecret(client, "default", NAMES).keys() for _ in range(5)))
    assert len({keys.leaf.certificate for keys in found}) == 1
    assert found[0].leaf != old.leaf
    assert found[0].authority == old.authority


async def test_at_rest_nothing_is_written(server: FakeApiServer, client: Client) -> None:
    secret = KeySecret(client, "default", NAMES)
    keys = await secret.keys()
    server.requests.clear()
    assert await secret.keys() == keys
    assert not [request for request in server.requests if request.is_write]


async def test_a_secret_that_never_holds_still(server: FakeApiServer, client: Client) -> None:
    server.faults.add(Fault(Refuse(409, "Conflict"), verb="create|patch", resource="secrets", times=None))
    with pytest.raises(UserError, match="changed by others"):
        await KeySecret(client, "default", NAMES).keys()


def bundles(server: FakeApiServer, kind: str) -> list[str | None]:
    found = server.cluster.get(server.cluster.kind(kind), "hooks")
    return [webhook["clientConfig"].get("caBundle") for webhook in found["webhooks"]]


async def test_the_api_server_is_told_whom_to_trust(server: FakeApiServer, client: Client) -> None:
    client_config = {"service": {"name": "webhook", "namespace": "slurm"}}
    webhooks = [{"name": name, "clientConfig": client_config} for name in ("a.x.io", "b.x.io")]
    put(server, "ValidatingWebhookConfiguration", "hooks", webhooks=webhooks)
    put(server, "MutatingWebhookConfiguration", "hooks", webhooks=webhooks[:1])
    await inject(client, "hooks", b"one")
    assert bundles(server, "ValidatingWebhookConfiguration") == [b64encode(b"one").decode()] * 2
    assert bundles(server, "MutatingWebhookConfiguration") == [b64encode(b"one").decode()]
    server.requests.clear()
    await inject(client, "hooks", b"one")
    assert not [request for request in server.requests if request.is_write]
    await inject(client, "hooks", b"two")
    assert bundles(server, "ValidatingWebhookConfiguration") == [b64encode(b"two").decode()] * 2


async def test_configurations_that_do_not_exist_are_left_out(client: Client) -> None:
    await inject(client, "hooks", b"one")


def test_files_of_cert_manager(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("certs")
    assert not has_pair(folder)
    with pytest.raises(UserError, match=r"cannot read .*tls\.crt"):
        read_pair(folder)
    leaf = renewed(None, NAMES, NOW).leaf
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    assert has_pair(folder)
    assert read_pair(folder) == Pair(leaf.certificate, leaf.key)
