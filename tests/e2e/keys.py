"""Keys of a cluster on the stage: read and replaced."""

import base64
import json

from slurm_operator.slurm.keys import KeyRing
from tests.e2e.slurm import Slurm


def replace_key(slurm: Slurm, name: str, key: bytes) -> None:
    change = {"data": {name: base64.b64encode(key).decode()}}
    slurm.kubectl("patch", "secret", "slurm-keys", "--type=merge", "-p", json.dumps(change))


def ring(slurm: Slurm) -> KeyRing | None:
    """The keys of auth/slurm in use."""
    return KeyRing.read(read(slurm, "slurm-keys-ring", "slurm.key"))


def read(slurm: Slurm, secret: str, key: str) -> bytes:
    return base64.b64decode(slurm.get("secret", secret)["data"][key])


def holds(slurm: Slurm, worker: str, key: bytes) -> bool:
    """Whether a slurmd finds this key and no other."""
    file = slurm.kubectl("exec", worker, "-c", "slurmd", "--", "cat", "/etc/slurm/slurm.jwks")
    return KeyRing.read(file.encode()) == KeyRing.of(key)
