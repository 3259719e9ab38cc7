"""`slurm-operator run` as a process of its own, started again when it ends, as the kubelet does."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from slurm_local.processes import Background
from slurm_operator.errors import UserError
from tests.kube.control_plane import Place

RESTART_SECONDS = 10.0
"""The kubelet's first back-off."""


class Replica:
    """One replica of the operator of a namespace, with leader election at its default timing."""

    def __init__(self, here: Place, name: str, folder: Path) -> None:
        self.log = folder / f"{name}.log"
        self.restarts = 0
        command = [sys.executable, "-c", "import sys; from slurm_operator.cli import main; sys.exit(main())", "run"]
        options = [
            f"--kubeconfig={here.kubeconfig}",
            f"--namespaces={here.namespace}",
            "--leader-elect",
            f"--leader-elect-namespace={here.namespace}",
            "--health-addr=0",
            "--metrics-addr=0",
            f"--slurm-url={here.namespace}/slurm={here.slurm_url}",
        ]
        self._process = Background(name, [*command, *options], self.log)

    @property
    def leads(self) -> bool:
        """Whether the process that runs now has said that it leads."""
        said = self.log.read_text().rpartition(_STARTED)[2] if self.log.exists() else ""
        return '"leading"' in said

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            log.write(f"{_STARTED}\n")
        self._process.start()

    def kill(self) -> None:
        """Signal 9."""
        self._process.stop(patience=0)

    @asynccontextmanager
    async def kept_running(self) -> AsyncIterator["Replica"]:
        """Start the process, and start it again whenever it ends by itself."""
        self.start()
        keeper = asyncio.create_task(self._keep())
        try:
            yield self
        finally:
            keeper.cancel()
            self._process.stop(patience=10)

    async def _keep(self) -> None:
        while True:
            try:
                self._process.check()
            except UserError:
                await asyncio.sleep(RESTART_SECONDS)
                self.restarts += 1
                self.start()
            await asyncio.sleep(0.2)


_STARTED = "-- started"
