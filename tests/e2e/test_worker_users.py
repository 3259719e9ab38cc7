"""Two people on one worker of the stage, confined by control groups of version 1, which is what its machine has."""

from collections.abc import Iterator

import pytest

from tests.e2e.slurm import Slurm
from tests.e2e.small import Small, example
from tests.e2e.stage import Cluster
from tests.e2e.two_users import (
    GROUPS,
    SCRIPT,
    USERS,
    assert_both_ran_on,
    assert_files_are_private,
    assert_only_who_took_too_much_was_killed,
    assert_processors_are_confined,
    sections,
)

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "two-users"
CONF = """\
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
ConstrainCores=yes
ConstrainRAMSpace=yes
"""


def shared_worker(slurm: Slurm) -> dict[str, object]:
    """One worker with two CPUs and the /home of the login pod."""
    found = slurm.nodeset("work", 1)
    spec = found["spec"]
    spec["slurmd"] |= {
        "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "2", "memory": "512Mi"}},
        "volumeMounts": [{"name": "home", "mountPath": "/home"}],
    }
    spec["template"]["spec"]["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    return found


@pytest.fixture(scope="module")
def said(operator: Cluster) -> Iterator[dict[str, list[str]]]:
    """What the two saw."""
    slurm = Small(operator, NAMESPACE)
    slurm.kubectl("create", "namespace", NAMESPACE)
    files = next(document for document in example() if document["kind"] == "ConfigMap")
    confine = {**files, "metadata": {"name": "confine"}, "data": {"cgroup.conf": CGROUP_CONF}}
    slurm.start(confine, shared_worker(slurm), workers=0, extraConf=CONF, configFileRefs=[{"name": "confine"}])
    slurm.wait_ready("nodeset/work")
    slurm.login("sh", "-c", 'printf %s "$1" >> /etc/passwd; printf %s "$2" >> /etc/group', "sh", USERS, GROUPS)
    yield sections(slurm.login("bash", "-c", SCRIPT.read_text(), "two-users", "work-0", timeout=200))
    slurm.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_two_users_share_a_worker_at_the_same_time(said: dict[str, list[str]]) -> None:
    assert_both_ran_on("work-0", said)


def test_a_job_over_its_memory_ends_out_of_memory_and_its_neighbour_goes_on(said: dict[str, list[str]]) -> None:
    assert_only_who_took_too_much_was_killed(said)


def test_each_job_has_its_own_processor_and_cannot_take_the_other(said: dict[str, list[str]]) -> None:
    assert_processors_are_confined(said)


def test_what_belongs_to_one_cannot_be_read_by_the_other(said: dict[str, list[str]]) -> None:
    assert_files_are_private(said)
