"""New key material, and the ring that the key of auth/slurm travels in.

Whether a key is needed at all is the caller's to decide: what exists is kept.
"""

import base64
import hashlib
import json
import secrets
import string
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SLURM_KEY_LENGTH = 1024
JWT_KEY_LENGTH = 1024
RSA_BITS = 4096
SHORTEST_KEY = 16
"""Bytes below which auth/slurm refuses a key of a ring."""

_PRINTABLE = string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_{|}~"

PrivateKey = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


def slurm_key() -> bytes:
    """The key that all daemons of a cluster share (auth/slurm)."""
    return _printable(SLURM_KEY_LENGTH)


def jwt_key() -> bytes:
    """The HMAC key that signs tokens (auth/jwt, HS256)."""
    return _printable(JWT_KEY_LENGTH)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys of auth/slurm: all of them are believed, one of them signs."""

    keys: tuple[bytes, ...]
    signs: bytes

    @classmethod
    def of(cls, key: bytes) -> "KeyRing":
        return cls((key,), key)

    def towards(self, key: bytes) -> "KeyRing":
        """One step of a rotation: first everybody believes the new key, then it signs, then it is the only one."""
        if key not in self.keys:
            return replace(self, keys=(*self.keys, key))
        return replace(self, signs=key) if self.signs != key else KeyRing.of(key)

    def file(self) -> str:
        """slurm.jwks, which auth/slurm prefers to slurm.key."""
        entries = [self._entry(key) for key in self.keys]
        return json.dumps({"keys": entries}, sort_keys=True)

    def _entry(self, key: bytes) -> dict[str, str]:
        value = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
        entry = {"alg": "HS256", "kty": "oct", "kid": key_id(key), "k": value}
        return {**entry, "use": "default"} if key == self.signs else entry

    @classmethod
    def read(cls, file: bytes) -> "KeyRing | None":
        """What `file` wrote; None for anything else."""
        try:
            entries = json.loads(file)["keys"]
            keys = tuple(base64.urlsafe_b64decode(f"{entry['k']}==") for entry in entries)
            (signs,) = (key for key, entry in zip(keys, entries, strict=True) if entry.get("use") == "default")
        except (ValueError, KeyError, TypeError):
            return None
        return cls(keys, signs)


def key_id(key: bytes) -> str:
    """By which a signature tells its key."""
    return hashlib.sha256(key).hexdigest()[:16]


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
