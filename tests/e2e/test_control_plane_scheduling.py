"""What administrators and users do with a scheduler, through the login pod of the real stage."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.slurm import Slurm
from tests.e2e.small import extra_conf
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def account(slurm: Slurm) -> Iterator[str]:
    """An account that root may charge."""
    slurm.login("sacctmgr", "-i", "add", "account", "physics", "fairshare=30")
    slurm.login("sacctmgr", "-i", "add", "user", "root", "account=physics", "fairshare=10")
    yield "physics"
    slurm.login("scancel", "-A", "physics")
    slurm.login("sacctmgr", "-i", "delete", "user", "root", "account=physics")
    slurm.login("sacctmgr", "-i", "delete", "account", "physics")


@pytest.fixture
def qos(slurm: Slurm) -> Iterator[str]:
    """A QOS of which one job may run at a time."""
    slurm.login("sacctmgr", "-i", "add", "qos", "single", "MaxJobsPerUser=1")
    slurm.login("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=single")
    yield "single"
    slurm.login("scancel", "-q", "single")
    slurm.login("sacctmgr", "-i", "delete", "qos", "single")


def sacct(slurm: Slurm, job: str, fields: str) -> str:
    return slurm.login("sacct", "-n", "-X", "-P", "-j", job, "-o", fields)


def reason(slurm: Slurm, job: str) -> str:
    return slurm.login("squeue", "-h", "-j", job, "-o", "%r")


def test_jobs_are_charged_to_accounts(slurm: Slurm, account: str) -> None:
    job = slurm.login("sbatch", "--parsable", "--wait", "-A", account, "-o", "/dev/null", "--wrap", "true")
    assert sacct(slurm, job, "Account,State") == "physics|COMPLETED"


def test_fairshare_is_what_was_given(slurm: Slurm, account: str) -> None:
    slurm.login("srun", "-A", account, "sleep", "1")
    rows = [line.split("|") for line in slurm.login("sshare", "-n", "-P", "-a", "-o", "Account,User,RawShares").split()]
    assert [account, "root", "10"] in rows
    assert [account, "", "30"] in rows


def test_a_qos_limits_what_runs(slurm: Slurm, qos: str) -> None:
    with extra_conf(slurm, "AccountingStorageEnforce=limits,qos\n"):
        first, second = slurm.submit("-q", qos), slurm.submit("-q", qos)
        slurm.wait_job(first, "RUNNING")
        eventually("the limit is the reason", lambda: reason(slurm, second) == "QOSMaxJobsPerUserLimit", timeout=30)
        slurm.cancel(first)
        slurm.wait_job(second, "RUNNING")
        assert sacct(slurm, second, "QOS") == qos
        slurm.cancel(second)


def test_a_job_waits_for_the_one_it_depends_on(slurm: Slurm) -> None:
    first = slurm.submit("--hold", wrap="true")
    second = slurm.submit(f"--dependency=afterok:{first}", wrap="true")
    assert reason(slurm, second) == "Dependency"
    slurm.login("scontrol", "release", first)
    slurm.wait_job(second, "COMPLETED")
    assert slurm.job_state(first) == "COMPLETED"


def test_an_array_runs_no_more_at_once_than_allowed(slurm: Slurm) -> None:
    job = slurm.submit("--array=1-3%1", wrap="sleep 1")
    seen = []

    def over() -> bool:
        states = slurm.login("squeue", "-h", "-j", job, "-r", "-o", "%T").split()
        seen.append(states.count("RUNNING"))
        return states == []

    eventually("the array is over", over, timeout=60)
    assert max(seen) == 1
    assert sacct(slurm, job, "State").split() == ["COMPLETED"] * 3


def test_a_reservation_keeps_others_off_a_node(slurm: Slurm) -> None:
    create = (
        "create reservation reservationname=window users=slurm nodes=big-0 starttime=now duration=5 flags=ignore_jobs"
    )
    slurm.login("scontrol", *create.split())
    try:
        job = slurm.submit("-w", "big-0", wrap="true")
        eventually("the job waits", lambda: reason(slurm, job).startswith("ReqNodeNotAvail"))
    finally:
        slurm.login("scontrol", "delete", "reservationname=window")
    slurm.wait_job(job, "COMPLETED")


def test_an_important_job_preempts_another(slurm: Slurm) -> None:
    preempt = (
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
        "PartitionName=low Nodes=big PriorityTier=1\nPartitionName=high Nodes=big PriorityTier=9\n"
    )
    with extra_conf(slurm, preempt):
        low = slurm.submit("-p", "low", "-n2", "--requeue")
        slurm.wait_job(low, "RUNNING")
        high = slurm.submit("-p", "high", "-n2", wrap="sleep 3")
        slurm.wait_job(high, "RUNNING", timeout=30)
        assert slurm.job_state(low) != "RUNNING"
        slurm.wait_job(high, "COMPLETED")
        found = json.loads(slurm.login("scontrol", "show", "job", low, "--json"))["jobs"][0]
        assert found["restart_cnt"] == 1
        slurm.cancel(low)
        eventually("nothing is queued", lambda: slurm.login("squeue", "-h", "-p", "low,high") == "")


def test_slurmctld_reaches_an_srun_on_the_login_pod(slurm: Slurm) -> None:
    """By the bare name of the pod: as long as it would not resolve, slurmctld would answer nobody."""
    log = "/tmp/reached.log"
    slurm.login("sh", "-c", f"setsid srun --job-name=reached -t 5 sleep 300 </dev/null >{log} 2>&1 &")
    running = ("squeue", "-h", "-n", "reached", "-t", "R", "-o", "%A")
    eventually("it runs", lambda: slurm.login(*running) != "")
    job = slurm.login(*running)
    slurm.login("scontrol", "notify", job, "lunch")
    eventually("srun says so", lambda: "lunch" in slurm.login("cat", log), timeout=10)
    slurm.cancel(job)
