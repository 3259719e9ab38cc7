"""`slurm-operator keys`: fresh keys for a new cluster, as a Secret to apply."""

import argparse
from base64 import b64encode

import yaml

from slurm_operator.cli.types import Subparsers
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.keys import jwt_key, password, slurm_key


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("keys", help="print a Secret with fresh keys for a new cluster")
    parser.add_argument("--name", default="slurm-keys", help="name of the Secret (default slurm-keys)")
    parser.add_argument("--namespace", default="", help="namespace of the Secret (default: kubectl's)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    print(yaml.safe_dump(key_secret(options.name, options.namespace), sort_keys=False), end="")
    return 0


def key_secret(name: str, namespace: str = "") -> Manifest:
    """The key of auth/slurm, the key that signs tokens, and a password for the accounting database."""
    values = {"slurm.key": slurm_key(), "jwt.key": jwt_key(), "db-password": password()}
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    data = {key: b64encode(value).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}
