"""Certificates: they verify against their authority, say who they are for, and survive an interrupted start."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from slurm_local.controlplane import ControlPlane
from slurm_local.pki import Authority
from slurm_operator.kube.config import load


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_an_issued_certificate_names_its_owner_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    cert = certificate(authority.issue("node", "system:node:a", groups=["system:nodes"], hosts=["a", "10.0.0.1"]).cert)

    cert.verify_directly_issued_by(certificate(authority.pair.cert))
    assert cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:a"
    assert cert.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]
    assert cert.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=365)


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    pair = Authority(tmp_path, "ca").issue("admin", "admin")

    assert pair.key.stat().st_mode & 0o777 == 0o600


def test_an_authority_is_read_again_and_issues_the_same_certificate(tmp_path: Path) -> None:
    first = Authority(tmp_path, "ca").issue("admin", "admin").cert.read_bytes()

    assert Authority(tmp_path, "ca").issue("admin", "admin").cert.read_bytes() == first


def test_a_key_without_its_certificate_is_made_anew(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    authority.issue("admin", "admin").cert.unlink()

    pair = authority.issue("admin", "admin")

    certificate(pair.cert).verify_directly_issued_by(certificate(authority.pair.cert))


def test_the_kubeconfig_can_be_loaded_and_stands_on_its_own(tmp_path: Path) -> None:
    plane = ControlPlane(
        folder=tmp_path,
        address="10.64.0.2",
        port=6443,
        etcd_port=2379,
        etcd_peer_port=2380,
        service_range="10.64.240.0/20",
        service_address="10.64.240.1",
    )
    path = plane.kubeconfig("admin", "kubernetes-admin", "system:masters")
    copy = tmp_path / "elsewhere"
    copy.write_text(path.read_text())

    assert load(str(copy)).server == "https://10.64.0.2:6443"
    assert path.stat().st_mode & 0o777 == 0o600
