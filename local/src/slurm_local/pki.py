"""The stage's certificate authorities, and a certificate for each program that speaks in it."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as files."""

    cert: Path
    key: Path


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
    return key


def write_service_account_keys(folder: Path) -> Pair:
    """The pair that service-account tokens are signed and checked with."""
    pair = Pair(folder / "sa.pub", folder / "sa.key")
    if not pair.cert.exists():
        public = write_key(pair.key).public_key()
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        pair.cert.write_bytes(public.public_bytes(encoding, form))
    return pair


class Authority:
    """A certificate authority kept as two files; made on first use, read afterwards."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        if not self.pair.cert.exists():
            self._create(name)
        key = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.pair.key} is no elliptic-curve key")
        self._key = key
        self._cert = x509.load_pem_x509_certificate(self.pair.cert.read_bytes())

    def _create(self, name: str) -> None:
        key = write_key(self.pair.key)
        subject = _name(f"{name}-stage")
        usage = x509.KeyUsage(True, False, True, False, False, True, True, False, False)
        builder = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        _write(self.pair.cert, builder.sign(key, hashes.SHA256()))

    def issue(self, file: str, name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Pair:
        """A certificate for `name` in these groups; with `hosts` it also serves under those names and addresses."""
        pair = Pair(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        if pair.cert.exists():
            return pair
        key = write_key(pair.key)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _builder(_name(name, groups), self._cert.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        _write(pair.cert, builder.sign(self._key, hashes.SHA256()))
        return pair


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, cert: x509.Certificate) -> None:
    """Writes whole or not at all, so that an interrupted start finds no half certificate."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    partial.rename(path)
