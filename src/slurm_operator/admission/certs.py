"""An own certificate authority for the webhook: pure functions over what is kept in a Secret.

A new authority is announced before anything is signed by it: the bundle holds both the old and the new one, and
only when everybody has had time to see that is the serving certificate replaced.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY: Final = datetime.timedelta(days=1)
AUTHORITY_LIFE: Final = 1825 * _DAY
AUTHORITY_RENEWAL: Final = 365 * _DAY
"""So long before its end an authority gets a successor, and no certificate outlives its authority."""
LEAF_LIFE: Final = 360 * _DAY
LEAF_RENEWAL: Final = 120 * _DAY
SETTLING: Final = datetime.timedelta(hours=1)
"""How long a new authority is only announced."""
_SKEW: Final = datetime.timedelta(hours=1)
"""Certificates begin in the past, for machines whose clocks are late."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """Everything the webhook keeps: who signs, who is trusted, and what is served."""

    authority: Pair
    bundle: bytes
    """What clients trust: the authority and, while it is being replaced, the one before."""
    leaf: Pair

    @classmethod
    def from_data(cls, data: Mapping[str, bytes]) -> Self | None:
        """None if anything is missing; names as in Secrets of type kubernetes.io/tls."""
        bundle, leaf = data.get("ca.crt", b"").strip(), Pair(data.get("tls.crt", b""), data.get("tls.key", b""))
        if not (bundle and leaf.certificate and leaf.key):
            return None
        bundle += b"\n"
        return cls(Pair(first_certificate(bundle), data.get("ca.key", b"")), bundle, leaf)

    def to_data(self) -> dict[str, bytes]:
        return {
            "ca.crt": self.bundle,
            "ca.key": self.authority.key,
            "tls.crt": self.leaf.certificate,
            "tls.key": self.leaf.key,
        }


def renewed(keys: Keys | None, names: Sequence[str], now: datetime.datetime) -> Keys:
    """What should be kept from now on: the same object if nothing is due."""
    keys = _with_authority(keys, names, now)
    if _leaf_is_due(keys, names, now):
        return replace(keys, leaf=issue(keys.authority, names, now))
    if keys.bundle != keys.authority.certificate and _is_settled(keys.leaf.certificate, now) and _is_signed(keys):
        return replace(keys, bundle=keys.authority.certificate)
    return keys


def expiry(certificate: bytes) -> datetime.datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def first_certificate(bundle: bytes) -> bytes:
    return bundle.partition(_END)[0] + _END if _END in bundle else bundle


def new_authority(now: datetime.datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one name in a bundle would confuse verifiers that look issuers up by name.
    subject = _named(f"slurm-operator-webhook-ca@{now:%Y-%m-%dT%H:%M:%SZ}")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, names: Sequence[str], now: datetime.datetime) -> Pair:
    """A serving certificate for these DNS names."""
    key, signer = ec.generate_private_key(ec.SECP256R1()), _private(authority)
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    builder = (
        _builder(_named(names[0][:64]), issuer, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


_END: Final = b"-----END CERTIFICATE-----\n"


def _with_authority(keys: Keys | None, names: Sequence[str], now: datetime.datetime) -> Keys:
    if keys is not None and _can_sign(keys.authority, now):
        return keys
    authority = new_authority(now)
    if keys is None:
        return Keys(authority, authority.certificate, issue(authority, names, now))
    before = [part + _END for part in keys.bundle.split(_END)[:-1]]
    trusted = [part for part in before[:1] if _is_valid(part, now)]
    return Keys(authority, b"".join([authority.certificate, *trusted]), keys.leaf)


def _can_sign(authority: Pair, now: datetime.datetime) -> bool:
    try:
        key = _private(authority)
        certificate = x509.load_pem_x509_certificate(authority.certificate)
    except (ValueError, TypeError):
        return False
    lasts = now + AUTHORITY_RENEWAL < certificate.not_valid_after_utc
    return lasts and certificate.public_key() == key.public_key()


def _is_valid(certificate: bytes, now: datetime.datetime) -> bool:
    try:
        return now < expiry(certificate)
    except ValueError:
        return False


def _leaf_is_due(keys: Keys, names: Sequence[str], now: datetime.datetime) -> bool:
    try:
        leaf = x509.load_pem_x509_certificate(keys.leaf.certificate)
        key = serialization.load_pem_private_key(keys.leaf.key, None)
        covered = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return True
    if now + LEAF_RENEWAL >= leaf.not_valid_after_utc or leaf.public_key() != key.public_key():
        return True
    if not set(names) <= set(covered.get_values_for_type(x509.DNSName)):
        return True
    authority = keys.authority.certificate
    return not _is_signed(keys) and (_is_settled(authority, now) or authority == keys.bundle)


def _is_signed(keys: Keys) -> bool:
    """Whether the present authority signed what is served; if not, the one before did."""
    leaf, authority = map(x509.load_pem_x509_certificate, (keys.leaf.certificate, keys.authority.certificate))
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_settled(certificate: bytes, now: datetime.datetime) -> bool:
    begin = x509.load_pem_x509_certificate(certificate).not_valid_before_utc + _SKEW
    return now - begin >= SETTLING


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"a key of {type(key).__name__}, not of ECDSA")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)
