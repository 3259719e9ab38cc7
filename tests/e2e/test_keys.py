"""Keys that are replaced under running jobs, on the real stage."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from slurm_operator.slurm.keys import jwt_key
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, stopwatch
from tests.e2e.stage import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.trial]

NODES = "/slurm/v0.0.45/nodes/"


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


def read(slurm: Slurm, secret: str, key: str) -> bytes:
    return base64.b64decode(slurm.get("secret", secret)["data"][key])


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


def _pods(slurm: Slurm) -> list[dict[str, dict[str, str]]]:
    return list(slurm.cluster.kubectl.json("get", "pods", "-n", slurm.namespace)["items"])


def test_a_new_jwt_key_reaches_everybody_and_no_job_notices(slurm: Slurm, token: str) -> None:
    """scenario 186"""
    daemons, untouched = ("slurm-controller-0", "slurm-accounting-0"), ("small-0", "small-1", "big-0")
    before, workers = uids(slurm, *daemons), uids(slurm, *untouched)
    old = read(slurm, token, "SLURM_JWT")
    assert status(slurm, old) == 200
    job = slurm.submit("-w", "small-0")
    slurm.wait_job(job, "RUNNING")
    login = slurm.login("hostname")
    key = base64.b64encode(jwt_key()).decode()
    slurm.kubectl("patch", "secret", "slurm-keys", "--type=merge", "-p", json.dumps({"data": {"jwt.key": key}}))
    with stopwatch("tokens of the new key are accepted"):
        eventually("a new token", lambda: read(slurm, token, "SLURM_JWT") != old, timeout=30)
        eventually(
            "slurmctld and slurmdbd are new",
            lambda: all(now not in ("", was) for now, was in zip(uids(slurm, *daemons), before, strict=True)),
            timeout=90,
        )
        eventually("the new token is good", lambda: status(slurm, read(slurm, token, "SLURM_JWT")) == 200, timeout=60)
    assert status(slurm, old) != 200
    assert slurm.job_state(job) == "RUNNING"
    assert slurm.login("srun", "--overlap", f"--jobid={job}", "hostname") == "small-0", "a new step"
    slurm.cancel(job)
    slurm.wait_job(job, "CANCELLED", "CANCELLED by 0")
    eventually("the accounting answers", lambda: answers(slurm, "sacctmgr", "-n", "show", "cluster"), timeout=60)
    assert uids(slurm, *untouched) == workers, "workers do not hold that key"
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
