"""Changes of the configuration on the real stage: live within seconds everywhere, or refused before they do harm."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from slurm_operator.errors import UserError
from tests.e2e.job import EXPENDABLE, start_job
from tests.e2e.slurm import Slurm
from tests.e2e.small import Small, answers, part, script, stopwatch, wait_degraded
from tests.e2e.stage import Cluster, eventually

pytestmark = pytest.mark.timeout(300)

EXTRA = str(part("Controller")["spec"]["extraConf"])
SOON = 15.0


@pytest.fixture
def extra(slurm: Slurm) -> Iterator[Slurm]:
    """The shared cluster, whose extraConf a test may change."""
    yield slurm
    slurm.patch("controller", "slurm", {"spec": {"extraConf": EXTRA, "prologScriptRefs": None}})
    eventually("the old partitions are back", lambda: "night" not in (partitions(slurm) or ["night"]))
    slurm.wait_ready("controller/slurm")


@pytest.fixture
def restarting(operator: Cluster, namespace: str) -> Small:
    """A cluster whose slurmctld restarts to take up a configuration.

    Its worker has room for several jobs. slurmctld loses the end of a job that it hears of after it has saved its state
    and before it ends; that job keeps its processor afterwards.
    """
    small = Small(operator, namespace)
    small.start(cpus=4, inplaceReconfigure=False, persistence={"enabled": True})
    return small


def partitions(slurm: Slurm) -> list[str]:
    """Those that take jobs; none at all in the moment in which slurmctld starts over."""
    try:
        shown = slurm.login("timeout", "5", "sinfo", "-h", "-o", "%R %a").splitlines()
    except UserError:
        return []
    return [line.split()[0] for line in shown if not line.endswith(" drain")]


def restarts(slurm: Slurm) -> tuple[str, int]:
    """Which slurmctld this is: the pod, and how often its container was started again."""
    pod = slurm.get("pod", "slurm-controller-0")
    return pod["metadata"]["uid"], sum(s["restartCount"] for s in pod["status"].get("containerStatuses", ()))


def on_worker(slurm: Slurm, worker: str, *command: str) -> str:
    return slurm.kubectl("exec", worker, "-c", "slurmd", "--", *command).strip()


def refer_to(slurm: Slurm, name: str) -> None:
    """A prolog more: a new volume of the pod, so that slurmctld restarts."""
    before = restarts(slurm)
    slurm.patch("controller", "slurm", {"spec": {"prologScriptRefs": [{"name": name}]}})
    eventually("a new slurmctld", lambda: controller_pod(slurm) not in ("", before[0]), timeout=90)
    slurm.wait_ready("controller/slurm")
    eventually("it answers", lambda: answers(slurm, "sinfo"))


def controller_pod(slurm: Slurm) -> str:
    """Which one it is; nothing while there is none."""
    query = ("get", "pod", "slurm-controller-0", "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
    return slurm.kubectl(*query).strip()


def greeting(slurm: Slurm, worker: str) -> str:
    """What the prolog of a job leaves behind on its worker; nothing if slurmd was just reading its configuration."""
    on_worker(slurm, worker, "rm", "-f", "/tmp/greeting")
    with suppress(UserError):
        slurm.login("timeout", "-k", "1", "6", "srun", "-J", EXPENDABLE, "-w", worker, "true")
    return on_worker(slurm, worker, "sh", "-c", "cat /tmp/greeting || true")


def test_a_change_is_live_everywhere_within_seconds_and_slurmctld_stays(extra: Slurm) -> None:
    """scenario 178"""
    before = restarts(extra)
    job = start_job(extra, "-w", "small-0")
    extra.patch("controller", "slurm", {"spec": {"extraConf": f"{EXTRA}PartitionName=night Nodes=ALL Hidden=NO\n"}})
    with stopwatch("a new partition is seen on the login pod"):
        eventually("sinfo shows the partition", lambda: "night" in partitions(extra), timeout=SOON, pause=0.1)
    eventually(
        "the worker has the file",
        lambda: "night" in on_worker(extra, "small-0", "cat", "/run/slurm/conf/slurm.conf"),
        timeout=SOON,
    )
    eventually(
        "the login pod has the file",
        lambda: "night" in extra.login("cat", "/run/slurm/conf/slurm.conf"),
        timeout=SOON,
    )
    assert extra.login("srun", "-p", "night", "-N1", "hostname")
    assert restarts(extra) == before
    job.finish()


def test_a_partition_that_leaves_extra_conf_under_a_job_is_closed_and_the_job_goes_on(extra: Slurm) -> None:
    extra.patch("controller", "slurm", {"spec": {"extraConf": f"{EXTRA}PartitionName=night Nodes=ALL\n"}})
    eventually("sinfo shows the partition", lambda: "night" in partitions(extra), timeout=SOON)
    job = start_job(extra, "-p", "night", "-w", "small-0")
    extra.patch("controller", "slurm", {"spec": {"extraConf": EXTRA}})
    eventually("the partition is closed", lambda: "night" not in (partitions(extra) or ["night"]), timeout=SOON)
    eventually(
        "the Controller says for which job it is kept",
        lambda: (
            "partition night is kept because job" in extra.condition("controller", "slurm", "Progressing")["message"]
        ),
    )
    job.finish()


def test_a_changed_script_of_a_referenced_config_map_runs_before_the_next_job(extra: Slurm) -> None:
    extra.apply(script("greet", "echo one > /tmp/greeting"))
    refer_to(extra, "greet")
    eventually("the prolog runs", lambda: greeting(extra, "small-0") == "one")
    before = restarts(extra)
    extra.apply(script("greet", "echo two > /tmp/greeting"))
    with stopwatch("a changed prolog runs"):
        eventually("the changed prolog runs", lambda: greeting(extra, "small-0") == "two", timeout=SOON)
    assert restarts(extra) == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NoSuchParameter=1", ("NoSuchParameter",)),
        ("PartitionName=night Nodes=nowhere", ("nowhere",)),
        ("SchedulerType", ("SchedulerType",)),
    ],
    ids=["unknown key", "unknown nodes", "no value"],
)
def test_a_fatal_configuration_is_refused_and_slurmctld_goes_on(extra: Slurm, line: str, words: tuple[str]) -> None:
    before = restarts(extra)
    extra.patch("controller", "slurm", {"spec": {"extraConf": f"{EXTRA}{line}\n"}})
    wait_degraded(extra, "controller", "slurm", "ConfigurationRejected", "extraConf line", *words, timeout=20)
    assert answers(extra, "sinfo")
    assert line not in extra.get("configmap", "slurm-config")["data"]["slurm.conf"]
    assert restarts(extra) == before
    extra.patch("controller", "slurm", {"spec": {"extraConf": EXTRA}})
    eventually(
        "it is healthy again",
        lambda: extra.condition("controller", "slurm", "Degraded").get("status") == "False",
        timeout=20,
    )
    extra.wait_ready("controller/slurm", timeout=20)


def test_a_value_that_slurmctld_refuses_is_told_and_never_counts_as_delivered(extra: Slurm) -> None:
    """No rule of ours knows all values: slurmctld's own word counts."""
    eventually("the configuration in force is delivered", lambda: delivered(extra) == wanted(extra), timeout=30)
    before, running = delivered(extra), restarts(extra)
    bad = {"spec": {"extraConf": f"{EXTRA}PartitionName=xx Nodes=ALL State=BLA\n"}}
    extra.patch("controller", "slurm", bad)
    words = ("pod slurm/slurm-controller-0", 'Bad value "BLA" for State', "correct extraConf")
    wait_degraded(extra, "controller", "slurm", "ConfigurationRefused", *words, timeout=30)
    assert delivered(extra) == before != wanted(extra)
    extra.patch("controller", "slurm", {"spec": {"extraConf": EXTRA}})
    extra.wait_ready("controller/slurm", timeout=30)
    assert extra.condition("controller", "slurm", "Degraded")["status"] == "False"
    eventually("it is delivered", lambda: delivered(extra) == wanted(extra), timeout=30)
    assert restarts(extra) == running


def delivered(slurm: Slurm) -> str:
    return str(slurm.get("controller", "slurm")["status"].get("deliveredConfigHash"))


def wanted(slurm: Slurm) -> str:
    return str(slurm.get("controller", "slurm")["status"]["configHash"])


def test_without_in_place_reconfigure_slurmctld_restarts_once_and_runs_the_new_one(restarting: Small) -> None:
    """scenario 178"""
    uid, _ = restarts(restarting)
    night = f"{EXTRA}PartitionName=night Nodes=ALL\n"
    restarting.patch("controller", "slurm", {"spec": {"extraConf": night}})
    eventually(
        "sinfo shows the partition",
        lambda: "night" in partitions(restarting),
        timeout=90,
    )
    restarting.wait_ready("controller/slurm")
    after, count = restarts(restarting)
    assert after != uid
    assert count == 0
    restarting.apply(script("greet", "echo one > /tmp/greeting"))
    refer_to(restarting, "greet")
    eventually("the prolog runs", lambda: greeting(restarting, "work-0") == "one")
    restarting.apply(script("greet", "echo two > /tmp/greeting"))
    with stopwatch("a changed prolog runs, by a restart of slurmctld"):
        eventually("the changed prolog runs", lambda: greeting(restarting, "work-0") == "two", timeout=SOON)
    restarting.apply(script("greet", "echo three > /tmp/greeting"))
    assert restarting.login("srun", "-w", "work-0", "hostname") == "work-0", "started while slurmctld restarts"
