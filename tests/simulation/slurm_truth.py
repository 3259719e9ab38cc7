"""One Slurm node as it really is, whatever the operator has read of it."""

from dataclasses import dataclass

from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.model import Number


@dataclass
class Truth:
    """One Slurm node as it really is."""

    address: str
    started: float
    jobs: int = 0
    suspended: int = 0
    """Of these jobs: with CR_Core the node shows IDLE while all its jobs are suspended, and may be deleted."""
    drain: bool = False
    down: bool = False
    reason: str = ""
    responding: bool = True
    """Whether its slurmd runs."""

    def shown(self, name: str) -> SlurmNode:
        base = "DOWN" if self.down else "MIXED" if self.jobs > self.suspended else "IDLE"
        flags = {"DRAIN": self.drain, "DYNAMIC_NORM": True, "NOT_RESPONDING": not self.responding}
        state = (base, *(flag for flag, on in flags.items() if on))
        start = Number(set=True, number=int(self.started))
        return SlurmNode(name=name, state=state, reason=self.reason, address=self.address, slurmd_start_time=start)
