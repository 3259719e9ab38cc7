"""Services: the user's spec with our selector and ports."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from slurm_operator.api import names
from slurm_operator.api.common import ServiceSpec
from slurm_operator.api.meta import without_nulls
from slurm_operator.kube.resource import Manifest


def port(name: str, number: int, target: str, node_port: int = 0) -> Manifest:
    entry: dict[str, Any] = {"name": name, "port": number, "protocol": "TCP", "targetPort": target}
    return {**entry, "nodePort": node_port} if node_port else entry


def service(metadata: Manifest, wish: ServiceSpec, selector: Mapping[str, str], *ports: Manifest) -> Manifest:
    """A Service that clients use. externalIPs are never taken over: they could divert other people's traffic."""
    spec: dict[str, Any] = without_nulls(wish.spec)
    spec.pop("externalIPs", None)
    spec["selector"] = {**spec.get("selector", {}), **selector}
    spec["ports"] = _distinct([*spec.get("ports", []), *ports])
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


LOGIN_PORT = port("login", names.PORT_SSH, "login")


def headless_service(metadata: Manifest, selector: Mapping[str, str], *ports: Manifest) -> Manifest:
    """A Service that only gives pods their names, ready or not."""
    spec: dict[str, Any] = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": list(ports)}
    if selector:
        spec["selector"] = dict(selector)
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def member_service(metadata: Manifest, selector: Mapping[str, str], *ports: Manifest) -> Manifest:
    """A Service in front of one pod, ready or not."""
    spec = {"publishNotReadyAddresses": True, "selector": dict(selector), "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _distinct(ports: list[Manifest]) -> list[Manifest]:
    called = Counter(f"name {entry['name']}" for entry in ports if entry.get("name"))
    numbered = Counter(f"port {entry.get('port')}/{entry.get('protocol', 'TCP')}" for entry in ports)
    twice = [use for use, times in (called + numbered).items() if times > 1]
    if twice:
        raise ValueError(f"service.spec.ports: {twice[0]} is used twice; the operator adds its own port")
    return ports
