"""Daemons that run elsewhere, on the real stage: here those of another namespace, reached by name."""

from typing import Any

import pytest

from tests.e2e.job import run_job
from tests.e2e.slurm import Slurm
from tests.e2e.small import Small, part, volumes_and_users
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(slurm: Slurm, namespace: str) -> Small:
    """A namespace with the keys of the shared cluster."""
    small = Small(slurm.cluster, namespace)
    small.apply(keys_of(slurm), *volumes_and_users())
    return small


def keys_of(slurm: Slurm) -> dict[str, Any]:
    data = slurm.get("secret", "slurm-keys")["data"]
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "slurm-keys"}, "data": data}


def at(service: str, namespace: str, port: int) -> dict[str, Any]:
    return {"external": True, "externalConfig": {"host": f"{service}.{namespace}", "port": port}}


def test_workers_join_a_slurmctld_that_runs_elsewhere(slurm: Slurm, place: Small) -> None:
    """scenario 188"""
    elsewhere = at("slurm-controller", slurm.namespace, 6817)
    controller = part("Controller", **elsewhere, clusterName=f"{slurm.namespace}_slurm", accountingRef=None)
    place.apply(controller, part("RestApi"), place.nodeset("guest", 1))
    for kind in ("controller/slurm", "restapi/slurm", "nodeset/guest"):
        place.wait_ready(kind)
    assert "StatefulSet" not in place.kubectl("get", "statefulsets", "-o", "yaml").replace("kind: List", "")
    eventually("it is seen there", lambda: slurm.node_state("guest-0") == "IDLE", timeout=30)
    assert slurm.login("srun", "-w", "guest-0", "hostname") == "guest-0"
    assert run_job(slurm, "-w", "guest-0", wrap="true").nodes == "guest-0"
    place.scale("guest", 0)
    eventually("its record is removed there", lambda: slurm.node_state("guest-0") == "", timeout=60)


def test_jobs_are_recorded_by_a_slurmdbd_that_runs_elsewhere(slurm: Slurm, place: Small) -> None:
    accounting = part("Accounting", **at("slurm-accounting", slurm.namespace, 6819), storageConfig=None)
    controller = part("Controller", persistence={"enabled": False})
    place.apply(accounting, controller, part("RestApi"), part("LoginSet"), place.nodeset("work", 1))
    for kind in ("accounting/slurm", "controller/slurm", "loginset/login", "nodeset/work"):
        place.wait_ready(kind)
    job = run_job(place, wrap="true")
    recorded = ("sacct", "-M", f"{place.namespace}_slurm", "-D", "-n", "-X", "-P", "-j", str(job), "-o", "State")
    eventually("the shared accounting knows it", lambda: slurm.login(*recorded) == "COMPLETED", timeout=30)
    slurm.login("sacctmgr", "-i", "delete", "cluster", f"{place.namespace}_slurm")
