"""Background programs that end with whoever started them, however that one ends."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_local.shell import ENDING_WITH_US, tail
from slurm_operator.errors import UserError


class Background:
    """One program, its output in a log. The kernel kills it should this process die without stopping it."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        if self._process and self._process.poll() is None:
            return
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ENDING_WITH_US, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # An interrupt typed at the terminal is for the one who started us, who then stops us in order.
                start_new_session=True,
            )

    def check(self) -> None:
        """Fails with the end of the log if the program has ended by itself."""
        if self._process and self._process.poll() is not None:
            raise UserError(f"{self.name} ended with code {self._process.returncode}:\n{tail(self._log)}")

    def stop(self, *, patience: float = 5.0) -> None:
        """Asks the program to end, and ends it if it has not after `patience` seconds (0: at once)."""
        if self._process is None:
            return
        deadline = time.monotonic() + patience
        if patience > 0:
            self._process.terminate()
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._process.kill()
        self._process.wait()
        self._process = None
