"""The API server is away for ten minutes under running jobs and in the middle of a scale-in."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.job import start_job
from tests.e2e.slurm import Slurm
from tests.e2e.stage import Cluster, eventually

AWAY_SECONDS = 600.0
SHORT_JOB = "sleep 300"
"""Ends while the API server is away."""

_STOP = """pid=$(pidof kube-apiserver)
keeper=$(awk '/^PPid/ {print $2}' /proc/$pid/status)
kill -STOP $keeper
kill -KILL $pid
echo $keeper
"""


@contextmanager
def stopped_api_server(cluster: Cluster) -> Iterator[None]:
    """Kill the API server with signal 9, and start it again at the end."""
    machine = cluster.stage.control_plane
    keeper = machine.run("/bin/sh", "-c", _STOP).strip()
    try:
        yield
    finally:
        machine.run("/bin/sh", "-c", f"kill -CONT {keeper}")
        cluster.stage.wait_api()


def daemons(slurm: Slurm) -> dict[str, tuple[str, int]]:
    """Uid and restarts of each pod of the cluster but those of NodeSet flex."""
    found: list[dict[str, Any]] = slurm.cluster.kubectl.json("get", "pods", "-n", slurm.namespace)["items"]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"]["containerStatuses"]),
        )
        for pod in found
        if pod["metadata"]["labels"].get("app.kubernetes.io/instance") != "flex"
    }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_api_server_is_away_for_ten_minutes_under_jobs(slurm: Slurm, flex: str) -> None:
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    staying = start_job(slurm, "-p", flex, "-w", "flex-0")
    leaving = start_job(slurm, "-p", flex, "-w", "flex-1", wrap=SHORT_JOB)
    slurm.scale(flex, 1)
    slurm.wait_state("flex-1", "DRAINING")
    before, worker = daemons(slurm), slurm.get("pod", "flex-0")["metadata"]["uid"]
    drain = "sleep 120; scontrol update nodename=small-0 state=drain reason=maintenance"
    slurm.login("sh", "-c", f"nohup sh -c '{drain}' >/dev/null 2>&1 &")
    with stopped_api_server(slurm.cluster):
        time.sleep(AWAY_SECONDS)
    returned = time.monotonic()
    eventually("the workers that were to leave have left", lambda: list(slurm.pods(flex)) == ["flex-0"], timeout=180)
    print(f"API server back to the end of the scale-in: {time.monotonic() - returned:.1f} s")
    leaving.assert_undisturbed()
    staying.assert_running()
    assert slurm.get("pod", "flex-0")["metadata"]["uid"] == worker
    assert daemons(slurm) == before
    assert slurm.node("small-0")["reason"] == "maintenance"
    slurm.wait_ready("nodeset/flex")
    staying.finish()
    slurm.login("scontrol", "update", "nodename=small-0", "state=resume")
    slurm.wait_state("small-0", "IDLE")
