"""Credentials on a real API server, which checks the certificate of a connection on every request."""

import asyncio
import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slurm_local.apiserver import ApiServer
from slurm_operator.kube import CONFIG_MAPS, Client, Forbidden, KubeConfig, Unauthorized, load
from slurm_operator.kube.config import Material

PATIENCE_SECONDS = 30.0


def issue(server: ApiServer, cert: Path, key: Path, seconds: float) -> KubeConfig:
    """Write a certificate of an administrator that is valid for so long."""
    authority = server.plane.authority.pair
    signer = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    own, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = [(NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "renewed")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(kind, value) for kind, value in subject]))
        .issuer_name(x509.load_pem_x509_certificate(authority.cert.read_bytes()).subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(own.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    cert.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return KubeConfig(server.url, ca=Material(server.ca), certificate=Material(cert), key=Material(key))


async def refused(client: Client, namespace: str) -> bool:
    try:
        await client.list(CONFIG_MAPS, namespace)
    except Unauthorized:
        return True
    return False


async def test_a_renewed_certificate_is_used_before_the_old_one_expires(
    api_server: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clients keep a connection that began with the old certificate; one of them sees the new files."""
    monkeypatch.setattr("slurm_operator.kube.auth.LOOK_AGAIN_SECONDS", 0.0)
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"
    renewing = issue(api_server, cert, key, 3)
    assert renewing.certificate is not None
    assert renewing.key is not None
    certificate, private = Material(data=renewing.certificate.read()), Material(data=renewing.key.read())
    fixed = replace(renewing, certificate=certificate, key=private)
    async with Client(renewing) as client, Client(fixed) as witness:
        assert not await refused(client, namespace)
        assert not await refused(witness, namespace)
        issue(api_server, cert, key, 3600)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await refused(witness, namespace):
                assert not await refused(client, namespace)
                await asyncio.sleep(0.1)
        assert not await refused(client, namespace)


async def test_another_user_is_asked_for(api_server: ApiServer, namespace: str) -> None:
    """Impersonation that is dropped would mean more rights than the kubeconfig asks for."""
    admin = load(str(api_server.kubeconfig))
    async with Client(replace(admin, impersonate=(("Impersonate-User", "limited"),))) as client:
        with pytest.raises(Forbidden, match='User "limited" cannot list resource'):
            await client.list(CONFIG_MAPS, namespace)
    groups = (("Impersonate-Group", "one"), ("Impersonate-Group", "system:masters"))
    async with Client(replace(admin, impersonate=(("Impersonate-User", "limited"), *groups))) as client:
        await client.list(CONFIG_MAPS, namespace)
