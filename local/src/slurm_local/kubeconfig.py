"""Kubeconfig files that stand on their own: address, authority and certificate inside, no paths."""

import base64
import json
from pathlib import Path

from slurm_local.pki import Pair


def write_kubeconfig(path: Path, *, name: str, url: str, authority: Path, user: Pair) -> Path:
    """Writes a kubeconfig (JSON, which is YAML too) that only its owner can read."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": _data(authority)}}],
        "users": [
            {
                "name": name,
                "user": {"client-certificate-data": _data(user.cert), "client-key-data": _data(user.key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
