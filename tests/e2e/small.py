"""Parts of the example cluster for tests that need one of their own, and what they ask of it."""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import yaml

from slurm_local.recipes import project
from slurm_operator.cli.keys import key_secret
from slurm_operator.errors import UserError
from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually


def example() -> list[dict[str, Any]]:
    text = (project() / "examples/cluster.yaml").read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def part(kind: str, name: str = "", **spec: Any) -> dict[str, Any]:
    """One object of the example, with another name or some fields changed; None takes a field away."""
    found = copy.deepcopy(next(document for document in example() if document["kind"] == kind))
    if name:
        found["metadata"]["name"] = name
    found["spec"] = {key: value for key, value in {**found["spec"], **spec}.items() if value is not None}
    return found


def volumes_and_users() -> list[dict[str, Any]]:
    """The shared /home, the files beside slurm.conf and sssd.conf."""
    return [d for d in example() if d["kind"] in ("PersistentVolumeClaim", "ConfigMap", "Secret")]


def database() -> list[dict[str, Any]]:
    """MariaDB and its Service."""
    return [document for document in example() if document["metadata"]["name"] == "slurm-mariadb"]


class Small(Slurm):
    """A cluster of one worker in a namespace of its own, without accounting unless a test adds it."""

    def start(
        self, *extra: dict[str, Any], login: bool = True, workers: int = 1, cpus: int = 1, **controller: Any
    ) -> None:
        parts = self.manifests(*extra, login=login, workers=workers, cpus=cpus, **controller)
        self.apply(key_secret("slurm-keys", self.namespace), *parts)
        for kind in ("controller/slurm", "restapi/slurm", *(["loginset/login"] if login else [])):
            self.wait_ready(kind)
        if workers:
            self.wait_ready("nodeset/work")

    def manifests(
        self, *extra: dict[str, Any], login: bool = True, workers: int = 1, cpus: int = 1, **controller: Any
    ) -> list[dict[str, Any]]:
        defaults = {"accountingRef": None, "persistence": {"enabled": False}}
        parts = [*volumes_and_users(), *extra, part("Controller", **{**defaults, **controller}), part("RestApi")]
        if login:
            parts.append(part("LoginSet"))
        if workers:
            nodeset = self.nodeset("work", workers)
            nodeset["spec"]["slurmd"]["resources"]["limits"] = {"cpu": f"{cpus}", "memory": f"{cpus * 256}Mi"}
            parts.append(nodeset)
        return parts


def answers(slurm: Slurm, *command: str) -> bool:
    """A command on the login pod succeeds, soon."""
    try:
        slurm.login("timeout", "3", *command)
    except UserError:
        return False
    return True


@contextmanager
def extra_conf(slurm: Slurm, lines: str) -> Iterator[None]:
    """A few lines more in slurm.conf, live on the login pod."""
    before = slurm.get("controller", "slurm")["spec"]["extraConf"]

    def live() -> bool:
        return lines.strip() in slurm.login("cat", "/run/slurm/conf/slurm.conf")

    slurm.patch("controller", "slurm", {"spec": {"extraConf": before + lines}})
    try:
        eventually("the lines are live", live, timeout=30)
        yield
    finally:
        slurm.patch("controller", "slurm", {"spec": {"extraConf": before}})
        eventually("they are gone", lambda: not live(), timeout=30)


def kill_daemon(slurm: Slurm, pod: str, container: str, daemon: str) -> None:
    """kill -9 inside its container."""
    slurm.kubectl("exec", pod, "-c", container, "--", "bash", "-c", f"kill -9 $(pidof {daemon})")


def save_state(slurm: Slurm, job: str) -> None:
    """Have slurmctld write its state, which it does some seconds late: its last changes are lost with kill -9."""
    now = time.time()
    slurm.login("scontrol", "update", f"job={job}", "comment=last")
    eventually("slurmctld has written its state", lambda: _state_written(slurm) > now, timeout=30)


def _state_written(slurm: Slurm) -> float:
    """When slurmctld last wrote the state of its jobs."""
    state = f"/var/spool/slurmctld/{slurm.namespace}_slurm/job_state"
    command = ("stat", "-c", "%.Y", state)
    return float(slurm.kubectl("exec", "slurm-controller-0", "-c", "slurmctld", "--", *command))


@contextmanager
def stopwatch(what: str) -> Iterator[None]:
    """Prints how long something took; pytest shows it with -rP or -s."""
    start = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - start:.1f} s")


def script(name: str, line: str) -> dict[str, Any]:
    """A ConfigMap with one script."""
    data = {f"{name}.sh": f"#!/bin/sh\n{line}\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def wait_degraded(slurm: Slurm, kind: str, name: str, reason: str, *words: str, timeout: float = 60) -> None:
    """Not Ready, Degraded for this reason and in these words, and a warning event says them too."""

    def told() -> bool:
        # Both conditions from one read: a daemon that ends again and again is ready now and then.
        conditions = {found["type"]: found for found in slurm.get(kind, name).get("status", {}).get("conditions", ())}
        found, ready = conditions.get("Degraded", {}), conditions.get("Ready", {})
        return (
            found.get("status") == "True"
            and found.get("reason") == reason
            and all(word in found["message"] for word in words)
            and (ready.get("status") != "True" or reason == "ConfigurationRejected")
        )

    try:
        eventually(f"{kind}/{name} is Degraded: {reason} {words}", told, timeout)
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {slurm.condition(kind, name, 'Degraded')}") from None
    api_kind = slurm.get(kind, name)["kind"]
    eventually(f"an event about {reason} of {kind}/{name}", lambda: _warned(slurm, api_kind, name, words), timeout=10)


def _warned(slurm: Slurm, kind: str, name: str, words: Sequence[str]) -> bool:
    return any(
        event["type"] == "Warning" and all(word in event.get("note", "") for word in words)
        for event in slurm.events(kind, name)
    )
