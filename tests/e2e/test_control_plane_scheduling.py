"""What administrators and users do with a scheduler, through the login pod of the real stage."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.job import Job, run_job, start_job
from tests.e2e.slurm import Slurm
from tests.e2e.small import extra_conf
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(180)

FAIRSHARE = "PriorityType=priority/multifactor\nPriorityWeightFairshare=100000\nPriorityCalcPeriod=1\n"
"""Nothing but the usage of an account decides, and it is counted every minute, which is the shortest period."""


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
def idle_account(slurm: Slurm) -> Iterator[str]:
    """An account of the same shares that was never used."""
    slurm.login("sacctmgr", "-i", "add", "account", "chemistry", "fairshare=30")
    slurm.login("sacctmgr", "-i", "add", "user", "root", "account=chemistry", "fairshare=10")
    yield "chemistry"
    slurm.login("scancel", "-A", "chemistry")
    slurm.login("sacctmgr", "-i", "delete", "user", "root", "account=chemistry")
    slurm.login("sacctmgr", "-i", "delete", "account", "chemistry")


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
    job = run_job(slurm, "-A", account, wrap="true")
    assert sacct(slurm, str(job), "Account") == "physics"


def test_fairshare_is_what_was_given(slurm: Slurm, account: str) -> None:
    rows = [line.split("|") for line in slurm.login("sshare", "-n", "-P", "-a", "-o", "Account,User,RawShares").split()]
    assert [account, "root", "10"] in rows
    assert [account, "", "30"] in rows


def priorities(slurm: Slurm, *jobs: str) -> list[int]:
    found = dict(row.split() for row in slurm.login("squeue", "-h", "-o", "%i %Q").splitlines())
    return [int(found[job]) for job in jobs]


@pytest.mark.long
def test_the_account_that_used_less_goes_first(slurm: Slurm, account: str, idle_account: str) -> None:
    with extra_conf(slurm, FAIRSHARE):
        run_job(slurm, "-A", account, wrap="sleep 2")
        first = start_job(slurm, "-w", "small-0", "-A", account)
        later, sooner = (slurm.submit("-w", "small-0", "-A", name, wrap="sleep 2") for name in (account, idle_account))

        def decided() -> bool:
            behind, ahead = priorities(slurm, later, sooner)
            return ahead > behind

        eventually("the usage counts", decided, timeout=90)
        first.finish()
        slurm.wait_job(later, "COMPLETED")
    starts = [sacct(slurm, job, "Start") for job in (sooner, later)]
    assert starts == sorted(starts)
    assert starts[0] != starts[1]


def test_a_qos_limits_what_runs(slurm: Slurm, qos: str) -> None:
    with extra_conf(slurm, "AccountingStorageEnforce=limits,qos\n"):
        first = start_job(slurm, "-q", qos)
        second = Job(slurm, slurm.submit("-q", qos, wrap="true"))
        eventually("the limit is the reason", lambda: reason(slurm, str(second)) == "QOSMaxJobsPerUserLimit", 30)
        first.finish()
        slurm.wait_job(str(second), "COMPLETED")
        assert sacct(slurm, str(second), "QOS") == qos


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
