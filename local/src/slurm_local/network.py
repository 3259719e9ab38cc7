"""A stage's network: one bridge on the machine, a network namespace and a cable for each of its machines."""

import ipaddress
import json
import subprocess
from pathlib import Path

from slurm_local.layout import Names, Network, candidate_networks
from slurm_local.machine import program
from slurm_local.shell import ENDING_WITH_US
from slurm_operator.errors import UserError


class Wiring:
    """Makes and removes the network of one stage, with the `ip` program of the stage's own root."""

    def __init__(self, root: Path, names: Names) -> None:
        self._ip = program(root, "ip") if root.is_dir() else ["ip"]
        self._names = names

    def choose(self) -> Network:
        """A network that no route of this machine touches."""
        taken = self._routes()
        for network in candidate_networks(self._names.stage):
            if not any(network.whole.overlaps(route) for route in taken):
                return network
        raise UserError(
            "this machine has routes to every network that a stage could have (10.64.0.0 to 10.127.255.255)",
            hint="Remove a stage that is not needed: slurm-operator local down --name NAME.",
        )

    def _routes(self) -> list[ipaddress.IPv4Network]:
        routes = json.loads(self._run("-json", "-4", "route", "show", "table", "all"))
        found = [str(route["dst"]) for route in routes if route.get("dst", "default") != "default"]
        return [ipaddress.IPv4Network(destination, strict=False) for destination in found]

    def add_bridge(self, network: Network) -> None:
        bridge = self._names.bridge
        if not self._exists(bridge):
            self._batch(f"link add {bridge} type bridge")
        self._batch(f"addr replace {network.gateway}/24 dev {bridge}", f"link set {bridge} up")

    def add_machine(self, network: Network, machine: str, index: int, others: list[int]) -> None:
        """A fresh namespace with an address, cabled to the bridge, with routes to the pods of the other nodes."""
        self.remove_machine(machine, index)
        namespace, link = self._names.namespace(machine), self._names.link(index)
        namespace.parent.mkdir(parents=True, exist_ok=True)
        namespace.touch()
        subprocess.run(["unshare", f"--net={namespace}", "true"], check=True)
        self._batch(
            f"link add {link} type veth peer name eth0 netns {namespace}",
            f"link set {link} master {self._names.bridge} up",
        )
        routes = [f"route add {network.pods(other)} via {network.machine(other)}" for other in others if other != index]
        self._batch(
            "link set lo up",
            f"addr add {network.machine(index)}/24 dev eth0",
            "link set eth0 up",
            # Services have addresses here too; beyond the stage there is nothing to reach.
            f"route add {network.whole} via {network.gateway}",
            *routes,
            inside=namespace,
        )
        if index:
            self._batch(f"route replace {network.pods(index)} via {network.machine(index)}")

    def add_route(self, network: Network, machine: str, node: int) -> None:
        """Tells a machine that runs already where the pods of a new node are."""
        route = f"route replace {network.pods(node)} via {network.machine(node)}"
        self._batch(route, inside=self._names.namespace(machine))

    def remove_machine(self, machine: str, index: int) -> None:
        if self._exists(self._names.link(index)):
            self._batch(f"link del {self._names.link(index)}")
        unmount_below(self._names.namespace(machine))

    def remove(self) -> None:
        """Everything that bears the stage's tag."""
        unmount_below(self._names.folder)
        listing = json.loads(self._run("-json", "link", "show"))
        for link in [str(entry["ifname"]) for entry in listing]:
            # A cable goes by itself when the namespace at its other end does, perhaps at this moment.
            if (link == self._names.bridge or link.startswith(f"{self._names.tag}-")) and self._exists(link):
                self._run("link", "del", link, tolerate="Cannot find device")

    def _exists(self, link: str) -> bool:
        return Path(f"/sys/class/net/{link}").exists()

    def _batch(self, *lines: str, inside: Path | None = None) -> None:
        self._run("-batch", "-", lines=lines, inside=inside)

    def _run(self, *arguments: str, lines: tuple[str, ...] = (), inside: Path | None = None, tolerate: str = "") -> str:
        where = ["nsenter", f"--net={inside}"] if inside else []
        command = [*ENDING_WITH_US, *where, *self._ip, *arguments]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60)
        if done.returncode != 0 and not (tolerate and tolerate in done.stderr):
            what = "; ".join(lines) or " ".join(arguments)
            raise UserError(f"the stage's network could not be set up (ip {what}): {done.stderr.strip()}")
        return done.stdout


def unmount_below(path: Path) -> None:
    """Undoes every mount on a path or below it, the latest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):
        if point == str(path) or point.startswith(f"{path}/"):
            subprocess.run(["umount", "--lazy", point], check=True)
