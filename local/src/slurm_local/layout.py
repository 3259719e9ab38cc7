"""The names and addresses of a stage, all derived from its name and network: enough to find and remove all of it."""

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from slurm_operator.errors import UserError

STATE_HOME = Path("/var/lib/slurm-operator/stages")
CONTROL_PLANE = "control-plane"
MOST_NODES = 199

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_FIRST_NODE_HOST = 10


@dataclass(frozen=True, slots=True)
class Names:
    """What a stage's parts are called on the machine."""

    stage: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.stage):
            raise UserError(
                f"'{self.stage}' cannot be the name of a stage",
                hint="Use up to 32 lower-case letters, digits and dashes, starting and ending with a letter or digit.",
            )

    @property
    def folder(self) -> Path:
        return STATE_HOME / self.stage

    @property
    def tag(self) -> str:
        """Short enough for names of network interfaces, which hold 15 characters."""
        return "sl" + hashlib.sha256(self.stage.encode()).hexdigest()[:6]

    @property
    def bridge(self) -> str:
        return self.tag

    @property
    def cgroup(self) -> str:
        return f"slurm-stage-{self.stage}"

    def machine(self, name: str) -> Path:
        return self.folder / "machines" / name

    def namespace(self, machine: str) -> Path:
        """The file that a machine's network namespace is mounted on."""
        return self.machine(machine) / "netns"

    def link(self, index: int) -> str:
        """The machine's end of a cable to one of the stage's machines (0 is the control plane)."""
        return f"{self.tag}-{index}"


@dataclass(frozen=True, slots=True)
class Network:
    """A private /16: its first /24 holds the machines, then one /24 of pods for each node; Services are at its end."""

    second: int

    @property
    def _base(self) -> str:
        return f"10.{self.second}"

    @property
    def whole(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"{self._base}.0.0/16")

    @property
    def gateway(self) -> str:
        return f"{self._base}.0.1"

    @property
    def service_range(self) -> str:
        return f"{self._base}.240.0/20"

    @property
    def api_service(self) -> str:
        return f"{self._base}.240.1"

    @property
    def dns_service(self) -> str:
        return f"{self._base}.240.10"

    @property
    def control_plane(self) -> str:
        return f"{self._base}.0.2"

    def machine(self, index: int) -> str:
        """The address of a machine: 0 is the control plane, nodes count from 1."""
        return f"{self._base}.0.{_FIRST_NODE_HOST + index}" if index else self.control_plane

    def pods(self, index: int) -> str:
        return f"{self._base}.{index}.0/24"

    def pod_gateway(self, index: int) -> str:
        return f"{self._base}.{index}.1"


def node_name(index: int) -> str:
    return f"node-{index}"


def candidate_networks(stage: str) -> list[Network]:
    """Every network a stage could have, in an order of its own, so that stages seldom ask for the same."""
    choices = list(range(64, 128))
    start = int.from_bytes(hashlib.sha256(stage.encode()).digest()[:4], "big") % len(choices)
    return [Network(second) for second in choices[start:] + choices[:start]]
