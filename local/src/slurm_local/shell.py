"""Running other programs: their output in a log, their failure as one sentence with the log's last lines."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_operator.errors import UserError

# Put before a command, the kernel kills it as soon as whoever started it dies, even by `kill -9`.
ENDING_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
_TAIL_LINES = 6


def tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log that say something."""
    if not path.exists():
        return ""
    said = [line.rstrip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(said[-lines:])


def run_logged(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path,
    hint: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Runs a long command with all its output in `log`; says what failed, why, and what to do about it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        output.write(shlex.join(str(word) for word in command) + "\n")
        output.flush()
        done = subprocess.run(
            [*ENDING_WITH_US, *_with_all_it_starts(), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=cwd,
        )
    if done.returncode != 0:
        raise UserError(f"{what} failed:\n{tail(log)}", hint=f"{hint} The whole log is {log}.")


def _with_all_it_starts() -> list[str]:
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"] if os.geteuid() == 0 else []
