"""`slurm-operator up` as somebody types it: in a terminal of 80 columns, and with Ctrl-C when they lose patience."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_local.stage import down, existing
from tests.e2e.stage import Cluster

pytestmark = pytest.mark.timeout(600)

NAME = "cut"
PROGRAM = str(Path(sys.executable).parent / "slurm-operator")
# As they are announced, in this order; what is done already is not done again by the next `up`.
STEPS = (
    "starting the control plane",
    "waiting for 3 nodes",
    "loading the images",
    "installing the operator",
    "waiting for the Slurm cluster",
    "running a first job",
)
CTRL_C = b"\x03"


class Terminal:
    """A command in a terminal of its own, and what it wrote there."""

    def __init__(self, *command: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell starts in the background ignores it
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = ""

    def read_until(self, text: str, timeout: float = 300) -> bool:
        """Whether it was seen before the command ended."""
        deadline = time.monotonic() + timeout
        while text not in self.text:
            ready, _, _ = select.select([self._file], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {text!r} within {timeout:.0f} s:\n{self.text}"
            if not (more := self._more()):
                return False
            self.text += more
        return True

    def _more(self) -> str:
        try:
            return os.read(self._file, 4096).decode()
        except OSError:  # how a terminal says that nobody holds its other end
            return ""

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def end(self) -> int:
        """Its exit code, once it has written everything."""
        self.read_until("\0")
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def lines(self) -> list[str]:
        return [line for line in re.split(r"[\r\n]+|\x1b\[K", self.text) if line]


@pytest.fixture(autouse=True)
def gone() -> Iterator[None]:
    down(NAME)
    yield
    down(NAME)


def test_up_goes_on_wherever_it_was_interrupted(cluster: Cluster, images: list[Path]) -> None:
    """Beside the stage of the other tests, whose images it shares."""
    for step in STEPS:
        terminal = Terminal(PROGRAM, "up", "--name", NAME)
        assert terminal.read_until(step), terminal.text
        terminal.type(CTRL_C)
        assert terminal.end() == 130, terminal.text
        assert f"{step.split()[0]}" in terminal.text
        assert "interrupted: `" in terminal.text
        assert f"up --name {NAME}` goes on" in " ".join(terminal.lines)
        assert "Traceback" not in terminal.text

    terminal = Terminal(PROGRAM, "up", "--name", NAME)
    assert terminal.end() == 0, terminal.text
    assert {"$ srun -N2 hostname", "what to try next:"} <= set(terminal.lines)
    assert "COMPLETED" in terminal.text
    assert [line for line in terminal.lines if len(line) > 80] == []
    assert "\x1b" not in terminal.text.replace("\x1b[K", ""), "no colour"

    ours = "type=Warning,reportingComponent=slurm-operator"
    events = existing(NAME).kubectl("get", "events", "-n", "slurm", "--field-selector", ours, "-o", "name")
    assert events == "", "nothing that a new user would look into"

    removal = Terminal(PROGRAM, "down", "--name", NAME)
    assert removal.end() == 0, removal.text
    assert not down(NAME), "nothing is left to remove"
