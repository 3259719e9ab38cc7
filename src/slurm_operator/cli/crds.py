"""`slurm-operator crds`: print the custom resource definitions."""

import argparse

from slurm_operator.api.crd import render_crds
from slurm_operator.cli.types import Subparsers


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("crds", help="print the custom resource definitions, ready for kubectl apply -f -")
    parser.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    print(render_crds(), end="")
    return 0
