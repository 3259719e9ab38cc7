"""Key material has the format that Slurm and OpenSSH read."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from slurm_operator.slurm import keys


@pytest.fixture(scope="module")
def host_keys() -> dict[str, bytes]:
    return keys.ssh_host_keys()


def test_cluster_keys_are_long_printable_and_never_the_same() -> None:
    for make in (keys.slurm_key, keys.jwt_key):
        first, second = make(), make()
        assert len(first) == 1024
        assert first != second
        assert all(0x21 <= byte < 0x7F for byte in first)


OLD, NEW = b"o" * 32, bytes(range(200))


def test_a_key_is_believed_before_it_signs_and_signs_before_it_is_alone() -> None:
    """scenario 187"""
    steps = [keys.KeyRing.of(OLD)]
    while (following := steps[-1].towards(NEW)) != steps[-1]:
        steps.append(following)
    assert [(ring.keys, ring.signs) for ring in steps] == [
        ((OLD,), OLD),
        ((OLD, NEW), OLD),
        ((OLD, NEW), NEW),
        ((NEW,), NEW),
    ]


def test_a_ring_is_written_as_auth_slurm_reads_it_and_read_back() -> None:
    ring = keys.KeyRing((OLD, NEW), NEW)
    first, second = json.loads(ring.file())["keys"]
    assert (first["alg"], first["kty"], first.get("use")) == ("HS256", "oct", None)
    assert (base64.urlsafe_b64decode(second["k"] + "=="), second["use"]) == (NEW, "default")
    assert first["kid"] != second["kid"]
    assert keys.KeyRing.read(ring.file().encode()) == ring


@pytest.mark.parametrize("file", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"k": "eA"}]}', b"\xff"])
def test_what_is_no_ring_is_none(file: bytes) -> None:
    assert keys.KeyRing.read(file) is None


def test_host_keys_come_in_three_kinds_and_pairs(host_keys: dict[str, bytes]) -> None:
    expected = {"rsa": rsa.RSAPrivateKey, "ed25519": ed25519.Ed25519PrivateKey, "ecdsa": ec.EllipticCurvePrivateKey}
    assert len(host_keys) == 6
    for name, kind in expected.items():
        private = load_ssh_private_key(host_keys[f"ssh_host_{name}_key"], None)
        public = load_ssh_public_key(host_keys[f"ssh_host_{name}_key.pub"])
        assert isinstance(private, kind)
        assert private.public_key() == public


def test_the_rsa_key_is_long_and_the_curve_is_p256(host_keys: dict[str, bytes]) -> None:
    big = load_ssh_private_key(host_keys["ssh_host_rsa_key"], None)
    curve = load_ssh_private_key(host_keys["ssh_host_ecdsa_key"], None)
    assert isinstance(big, rsa.RSAPrivateKey)
    assert big.key_size == 4096
    assert isinstance(curve, ec.EllipticCurvePrivateKey)
    assert curve.curve.name == "secp256r1"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_openssh_reads_them(host_keys: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in host_keys.items():
        if name.endswith("_key"):
            path = tmp_path / name
            path.write_bytes(content)
            path.chmod(0o600)
            derived = subprocess.run(
                ["ssh-keygen", "-y", "-f", path], capture_output=True, check=True, timeout=10
            ).stdout.split()
            assert derived[:2] == host_keys[f"{name}.pub"].split()[:2]
