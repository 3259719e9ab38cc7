"""kubectl as a function: a command line in, its output or a sentence out."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_local.machine import program
from slurm_local.shell import ENDING_WITH_US
from slurm_operator.errors import UserError


@dataclass(frozen=True, slots=True)
class Kubectl:
    root: Path
    kubeconfig: Path

    def command(self, *arguments: str) -> list[str]:
        return [*program(self.root, "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        command = [*ENDING_WITH_US, *self.command(*arguments)]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"kubectl {' '.join(arguments)}: did not end within {timeout:.0f} s") from error
        if done.returncode != 0:
            raise UserError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, manifests: Sequence[dict[str, Any]]) -> None:
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(bundle))
