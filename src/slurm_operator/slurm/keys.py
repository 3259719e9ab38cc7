"""New key material. Whether a key is needed at all is the caller's to decide: what exists is kept."""

import base64
import json
import secrets
import string

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SLURM_KEY_LENGTH = 1024
JWT_KEY_LENGTH = 1024
RSA_BITS = 4096

_PRINTABLE = string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_{|}~"

PrivateKey = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


def slurm_key() -> bytes:
    """The key that all daemons of a cluster share (auth/slurm)."""
    return _printable(SLURM_KEY_LENGTH)


def jwt_key() -> bytes:
    """The HMAC key that signs tokens (auth/jwt, HS256)."""
    return _printable(JWT_KEY_LENGTH)


def jwks(key: bytes, key_id: str) -> str:
    """A JWKS document with one HS256 key, in the form that auth/jwt reads."""
    value = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
    return json.dumps({"keys": [{"alg": "HS256", "kty": "oct", "kid": key_id, "k": value}]}, sort_keys=True)


def ssh_host_keys() -> dict[str, bytes]:
    """Files of the host keys that sshd offers: RSA, Ed25519 and ECDSA, private and public. Takes a second or two."""
    made: dict[str, PrivateKey] = {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
    }
    files = {}
    for name, key in made.items():
        files[f"ssh_host_{name}_key"] = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        files[f"ssh_host_{name}_key.pub"] = _public(key)
    return files


def _public(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def _printable(length: int) -> bytes:
    return "".join(secrets.choice(_PRINTABLE) for _ in range(length)).encode()


def password(length: int = 32) -> bytes:
    """For a database: nothing in it needs quoting anywhere."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length)).encode()
