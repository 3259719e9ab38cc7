"""Keys that are replaced under running jobs, on the real stage."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from slurm_operator.desired.keyring import rings_hash
from slurm_operator.slurm.keys import KeyRing, jwt_key, slurm_key
from tests.e2e.job import UNTIL_RELEASED, Job, start_job
from tests.e2e.keys import holds, read, replace_key, ring
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, stopwatch
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(300)

NODES = "/slurm/v0.0.45/nodes/"
DAEMONS = ("slurm-controller-0", "slurm-accounting-0")
WORKERS = ("small-0", "small-1", "big-0")


@pytest.fixture
def jobs(slurm: Slurm) -> list[Job]:
    """Four running jobs, each in a step of its own, that end when they are released."""
    return [start_job(slurm, "-p", "all", "-n1", wrap=f"srun sh -c '{UNTIL_RELEASED}'") for _ in range(4)]


def work_goes_on(slurm: Slurm, jobs: list[Job]) -> None:
    """All jobs still run, take new steps and orders, and end as if nothing had happened."""
    for job in jobs:
        job.assert_running()
        assert slurm.login("srun", "--overlap", f"--jobid={job}", "hostname") == job.nodes, "a new step"
    cancelled, *others = jobs
    slurm.cancel(str(cancelled))
    slurm.wait_job(str(cancelled), "CANCELLED", "CANCELLED by 0")
    for job in others:
        job.release()
    for job in others:
        job.assert_undisturbed()


@pytest.fixture
def token(slurm: Slurm) -> Iterator[str]:
    """Name of a Secret that a Token keeps fresh."""
    spec = {"username": "root", "lifetime": "1h", "jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}}
    slurm.apply(
        {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token", "metadata": {"name": "guest"}, "spec": spec}
    )
    slurm.wait_ready("token/guest")
    yield "guest-jwt-root"
    slurm.kubectl("delete", "token", "guest")


def status(slurm: Slurm, token: bytes) -> int:
    """What slurmrestd answers to the bearer of a token."""
    query = ("get", "pods", "-n", slurm.namespace, "-l", "app.kubernetes.io/name=slurmrestd")
    pods = slurm.cluster.kubectl.json(*query)["items"]
    address = next(pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
    headers = {"X-SLURM-USER-TOKEN": token.decode()}
    request = urllib.request.Request(f"http://{address}:6820{NODES}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def uids(slurm: Slurm, *pods: str) -> list[str]:
    found = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in _pods(slurm)}
    return [found.get(pod, "") for pod in pods]


def _pods(slurm: Slurm) -> list[dict[str, Any]]:
    return list(slurm.cluster.kubectl.json("get", "pods", "-n", slurm.namespace)["items"])


def test_a_new_jwt_key_reaches_everybody_and_no_job_notices(slurm: Slurm, token: str, jobs: list[Job]) -> None:
    """scenario 186"""
    before, workers, login = uids(slurm, *DAEMONS), uids(slurm, *WORKERS), slurm.login("hostname")
    old = read(slurm, token, "SLURM_JWT")
    assert status(slurm, old) == 200
    replace_key(slurm, "jwt.key", jwt_key())
    with stopwatch("tokens of the new key are accepted"):
        eventually("a new token", lambda: read(slurm, token, "SLURM_JWT") != old, timeout=30)
        eventually(
            "slurmctld and slurmdbd are new",
            lambda: all(now not in ("", was) for now, was in zip(uids(slurm, *DAEMONS), before, strict=True)),
            timeout=90,
        )
        eventually("the new token is good", lambda: status(slurm, read(slurm, token, "SLURM_JWT")) == 200, timeout=60)
    assert status(slurm, old) != 200
    eventually("the accounting answers", lambda: answers(slurm, "sacctmgr", "-n", "show", "cluster"), timeout=60)
    work_goes_on(slurm, jobs)
    assert uids(slurm, *WORKERS) == workers, "workers do not hold that key"
    assert slurm.login("hostname") == login, "nor do login pods"
    slurm.apply(slurm.nodeset("later", 1))
    try:
        slurm.wait_ready("nodeset/later", timeout=60)
        slurm.scale("later", 0)
        eventually("the operator still speaks to Slurm", lambda: slurm.nodes("later") == [], timeout=60)
    finally:
        slurm.kubectl("delete", "nodeset", "later", timeout=90)
    for kind in ("controller/slurm", "accounting/slurm", "restapi/slurm"):
        slurm.wait_ready(kind)


def test_a_new_slurm_key_goes_round_in_steps_and_no_job_or_session_notices(slurm: Slurm, jobs: list[Job]) -> None:
    """scenario 187"""
    workers, login = uids(slurm, *WORKERS), slurm.login("hostname")
    key = slurm_key()
    replace_key(slurm, "slurm.key", key)
    with stopwatch("the new key alone is in use"):
        eventually("it is alone in the ring", lambda: ring(slurm) == KeyRing.of(key), timeout=150)
        for worker in WORKERS:
            eventually(f"{worker} holds it alone", partial(holds, slurm, worker, key), timeout=60)
        digest = rings_hash({"slurm.key": KeyRing.of(key)})
        eventually("slurmctld and slurmdbd follow", lambda: given(slurm, *DAEMONS) == [digest] * 2, timeout=60)
        for kind in ("controller/slurm", "accounting/slurm"):
            slurm.wait_ready(kind)
    work_goes_on(slurm, jobs)
    assert uids(slurm, *WORKERS) == workers, "no worker was replaced"
    assert slurm.login("hostname") == login, "nobody was logged out"


def given(slurm: Slurm, *pods: str) -> list[str]:
    """Hashes of the keys that pods were started with."""
    found = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in _pods(slurm)}
    return [found.get(pod, {}).get("slinky.slurm.net/slurm-key-hash", "") for pod in pods]
