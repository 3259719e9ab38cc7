"""The program `slurm-operator`: one module per command, and commands that other packages bring along.

A command module has `add_command(subparsers)`; a package beside the operator (the local stage) registers the same
kind of function under the entry-point group `slurm_operator.commands`, so that the operator never imports it.
"""

import argparse
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from slurm_operator import __version__
from slurm_operator.cli import crds, install, keys, run, status, validate, webhook
from slurm_operator.errors import UserError

if TYPE_CHECKING:
    from slurm_operator.cli.types import Subparsers

COMMANDS = (install, run, webhook, status, validate, crds, keys)


def parser() -> argparse.ArgumentParser:
    """The whole command line, with what other installed packages add to it."""
    top = argparse.ArgumentParser(prog="slurm-operator", description="Whole Slurm clusters on Kubernetes.")
    top.add_argument("--version", action="version", version=f"slurm-operator {__version__}")
    subparsers: Subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_command(subparsers)
    for entry in sorted(entry_points(group="slurm_operator.commands"), key=lambda found: found.name):
        entry.load()(subparsers)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one command; what a person can act on ends in one clear line, not in a traceback."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"slurm-operator: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
