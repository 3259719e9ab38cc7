"""The parts that generated pods are made of: volumes, mounts, probes, security contexts, sidecars."""

from collections.abc import Iterable, Sequence
from typing import Any

from slurm_operator.api import names
from slurm_operator.api.common import ConfigMapKeySelector, Container, SecretKeySelector
from slurm_operator.desired.merge import merge_container, merge_pod_spec, says_nothing
from slurm_operator.desired.scripts import script
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.writer import CONF_DIR, LOG_DIR

PRIVATE = 0o600
PRIVATE_BUT_EXECUTABLE = 0o610
PUBLIC = 0o644


def finished(ours: Manifest, users: Manifest, *, confined: bool = False) -> Manifest:
    """The pod spec with the user's template merged in; every container must have got an image.

    `confined` containers cannot gain rights that the user does not ask for, as PodSecurity `restricted` wants it.
    """
    merged = merge_pod_spec(ours, users)
    if confined:
        _confine(ours, merged)
    for kind in ("initContainers", "containers"):
        for container in merged.get(kind, []):
            if not container.get("image"):
                raise ValueError(
                    f"container {container.get('name', '')} has no image: set {container.get('name')}.image"
                )
    return merged


def _confine(ours: Manifest, merged: Manifest) -> None:
    """Take all capabilities from the containers of ours that need none."""
    of_pod = merged.get("securityContext") or {}
    for kind in ("initContainers", "containers"):
        names_of_ours = {container["name"] for container in ours.get(kind, [])}
        for container in merged.get(kind, []):
            context = container.get("securityContext") or {}
            is_root = context.get("runAsUser", of_pod.get("runAsUser")) == 0
            asks = context.get("privileged") or context.get("capabilities") or context.get("allowPrivilegeEscalation")
            if container.get("name") in names_of_ours and not is_root and not asks:
                container["securityContext"] = {**context, **_CONFINED}


_CONFINED: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container(name: str, users: Container, **ours: Any) -> Manifest:
    """One of our containers, with the user's wishes for it. What it says last is kept for the conditions."""
    kept = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    return merge_container({"name": name, **kept, **{key: value for key, value in ours.items() if value}}, users)


def nonroot(user: int) -> Manifest:
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user}


def container_context(user: int, template: Manifest) -> Manifest:
    """Our security context, less what the user decided for the whole pod: a container's own would win over it."""
    decided = template.get("securityContext") or {}
    ours = nonroot(user)
    if decided.get("runAsUser") == 0:
        ours.pop("runAsNonRoot")
    return {key: value for key, value in ours.items() if says_nothing(decided.get(key))}


def port(name: str, number: int) -> Manifest:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def http_probe(path: str, port_name: str, **timing: int) -> Manifest:
    return {"httpGet": {"path": path, "port": port_name}, **timing}


def tcp_probe(number: int, **timing: int) -> Manifest:
    return {"tcpSocket": {"port": number}, **timing}


PATIENT = {"periodSeconds": 10, "failureThreshold": 6}
STARTING = {"periodSeconds": 1, "failureThreshold": 60}
"""As patient, but clients do not wait up to ten seconds for a daemon that answers already."""
OFTEN = {"periodSeconds": 2}
"""For readiness that decides when clients reach a daemon again."""


def mount(name: str, path: str, sub_path: str = "", *, read_only: bool = True) -> Manifest:
    entry: Manifest = {"name": name, "mountPath": path}
    if sub_path:
        entry["subPath"] = sub_path
    return {**entry, "readOnly": True} if read_only else entry


def memory(name: str) -> Manifest:
    return {"name": name, "emptyDir": {"medium": "Memory"}}


def scratch(name: str) -> Manifest:
    return {"name": name, "emptyDir": {}}


def projected(name: str, mode: int, *sources: Manifest) -> Manifest:
    return {"name": name, "projected": {"defaultMode": mode, "sources": list(sources)}}


def from_secret(ref: SecretKeySelector | None, path: str) -> Sequence[Manifest]:
    """One key of a Secret as a file; nothing if there is no reference."""
    if ref is None:
        return ()
    return ({"secret": {"name": ref.name, "items": [{"key": ref.key, "path": path}]}},)


def from_key_ring(ref: SecretKeySelector | None) -> Sequence[Manifest]:
    """The auth/slurm keys in use. Never the user's Secret itself: it changes without asking anybody."""
    return from_secret(SecretKeySelector(name=names.key_ring(ref.name), key=ref.key), "slurm.jwks") if ref else ()


def reread_keys(daemon: str, keys: str, copy: str = "") -> Manifest:
    """A hook that has the daemon read its keys again whenever they change."""
    settings = f"DAEMON={daemon} KEYS={keys} COPY={copy}\n"
    return {"exec": {"command": ["sh", "-c", settings + script("keys")]}}


def from_config_map(ref: ConfigMapKeySelector | None, path: str) -> Sequence[Manifest]:
    if ref is None:
        return ()
    return ({"configMap": {"name": ref.name, "items": [{"key": ref.key, "path": path}]}},)


def all_of(config_maps: Iterable[str]) -> Sequence[Manifest]:
    """Every key of these ConfigMaps as a file."""
    return tuple({"configMap": {"name": name}} for name in config_maps)


CONF_MOUNT = mount("slurm-etc", CONF_DIR)
LOG_MOUNT = mount("slurm-logfile", LOG_DIR, read_only=False)
LOG_VOLUME = memory("slurm-logfile")


def log_sidecar(daemon: str, users: Container) -> Manifest:
    """Copies the daemon's log to standard output."""
    return container(
        "logfile",
        users,
        command=["sh", "-c", script("logfile")],
        env=[{"name": "SOCKET", "value": f"{LOG_DIR}/{daemon}.log"}],
        restartPolicy="Always",
        volumeMounts=[LOG_MOUNT],
    )


def hostname_anti_affinity(expressions: Manifest) -> Manifest:
    """A term that keeps two pods of a kind from one Kubernetes Node."""
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": expressions}


def pod_context(user: int) -> Manifest:
    """The security context of a pod whose containers all run as one user."""
    return {**nonroot(user), "fsGroup": user, "seccompProfile": {"type": "RuntimeDefault"}}
