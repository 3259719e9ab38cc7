"""An administrator's day: whatever changes around eight jobs, no job and no decision of the administrator is lost.

Workers of `a`: a-0 has jobs, a-1 was set DOWN, a-2 was drained and is named by a reservation for tomorrow, a-3 is idle
and named by a job that runs on a-0. Scale-in takes a-2 and a-3.
Workers of `b`: b-0 has jobs, b-1 has the suspended one alone and is named by a job that runs on b-0.
"""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from slurm_operator.slurm.keys import KeyRing, slurm_key
from tests.e2e.job import Job, start_job
from tests.e2e.keys import holds, replace_key, ring
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, kill_daemon, part, save_state, stopwatch
from tests.e2e.stage import eventually, never

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

JOB_SECONDS = 360
"""How long each job sleeps: longer than all steps together."""
NODE_AWAY_SECONDS = 15
"""How long the Kubernetes Node is missing: less than Kubernetes lets pods without a Node live."""
NEW_IMAGE = "localhost/slurm-operator/slurmd-ssh:26.05"
WORK = f"sleep {JOB_SECONDS}"


@pytest.fixture
def workers(slurm: Slurm) -> Iterator[Slurm]:
    """The NodeSets, on a cluster where a node that was set DOWN stays so until the administrator changes it."""
    before = slurm.get("controller", "slurm")["spec"]["extraConf"]
    strict = before.replace("ReturnToService=2", "ReturnToService=1")
    slurm.patch("controller", "slurm", {"spec": {"extraConf": strict}})
    slurm.apply(nodeset(slurm, "a", 4, avoid=control_plane(slurm)), nodeset(slurm, "b", 2, avoid=[]))
    for name in ("a", "b"):
        slurm.wait_ready(f"nodeset/{name}")
    eventually("the configuration is live", lambda: "= 1" in returns_to_service(slurm), timeout=60)
    yield slurm
    slurm.cluster.kubectl("uncordon", *slurm.cluster.nodes)
    slurm.login("sh", "-c", "for name in a b c; do scancel --partition=$name || true; done")
    for name in ("current", "tomorrow"):
        slurm.login("sh", "-c", f"scontrol delete reservationname={name} || true")
    slurm.kubectl("delete", "nodeset", "a", "b", timeout=180)
    slurm.patch("controller", "slurm", {"spec": {"extraConf": before}})
    slurm.wait_ready("controller/slurm")


def returns_to_service(slurm: Slurm) -> str:
    return slurm.login("sh", "-c", "timeout 5 scontrol show config | grep ReturnToService || true")


def control_plane(slurm: Slurm) -> list[str]:
    """Kubernetes Nodes of slurmctld and of the login pod, which the test has to reach at all times."""
    login = slurm.kubectl("get", "pods", "-l", "app.kubernetes.io/name=login", "-o", "name").split("/")[1].strip()
    return sorted({slurm.get("pod", name)["spec"]["nodeName"] for name in (login, "slurm-controller-0")})


def nodeset(slurm: Slurm, name: str, replicas: int, avoid: list[str]) -> dict[str, Any]:
    """A NodeSet whose workers take many jobs each, away from some Kubernetes Nodes."""
    found = slurm.nodeset(name, replicas, partition={"enabled": True, "config": "State=UP OverSubscribe=FORCE:8"})
    found["spec"]["slurmd"]["resources"]["limits"] = {"cpu": "2", "memory": "1Gi"}
    if avoid:
        elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoid}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        found["spec"]["template"]["spec"]["affinity"] = affinity
    return found


class Day:
    """The jobs of the day and the steps of the administrator."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.problems: list[str] = []
        """What went wrong until now. All steps run nevertheless, so that one run tells everything."""
        self.decide()
        self.start_jobs()
        self.decisions = {
            "a-1": ({"DOWN"}, "memory errors since Monday", "root"),
            "a-2": ({"DRAIN"}, "the fan is replaced on Friday", "root"),
        }
        assert self.read_decisions() == self.decisions
        self.reservations = self.read_reservations()

    # What holds throughout

    def decide(self) -> None:
        """One worker is drained, another is set DOWN, and a reservation for tomorrow names a worker."""
        self.slurm.login("scontrol", "update", "nodename=a-2", "state=drain", "reason=the fan is replaced on Friday")
        self.slurm.login("scontrol", "update", "nodename=a-1", "state=down", "reason=memory errors since Monday")
        self.reserve("tomorrow", "nodes=a-2", "starttime=tomorrow", "duration=60")

    def reserve(self, name: str, *options: str) -> None:
        self.slurm.login("scontrol", "create", "reservation", f"reservationname={name}", "users=root", *options)

    def start_jobs(self) -> None:
        for rather_not in ("a-3", "b-1"):
            self.slurm.login("scontrol", "update", f"nodename={rather_not}", "weight=9")
        start = partial(start_job, self.slurm, "-n1", wrap=WORK)
        self.listed = [start("-p", "a", "-N1", "-w", "a-[0,3]"), start("-p", "b", "-N1", "-w", "b-[0-1]")]
        assert [job.nodes for job in self.listed] == ["a-0", "b-0"]
        self.suspended = start("-p", "b", "--exclude=b-0")
        ordinary = [start("-p", "a", "--exclude=a-3"), *(start("-p", "b", "--exclude=b-1") for _ in range(2))]
        interactive = self.start_interactive()
        self.reserve("current", "nodes=a-0", "starttime=now", "duration=1-00:00:00", "flags=ignore_jobs")
        reserved = start("-p", "a", "--reservation=current")
        self.jobs = [*self.listed, self.suspended, reserved, interactive, *ordinary]
        assert len(self.jobs) == 8
        self.slurm.login("scontrol", "suspend", str(self.suspended))

    def start_interactive(self) -> Job:
        """A user's srun on the login pod, whose end and output are kept in /tmp."""
        command = f"srun -J interactive -p b -n1 --exclude=b-1 sh -c '{WORK}; hostname' </dev/null >/tmp/said 2>&1"
        self.slurm.login(
            "sh", "-c", f'rm -f /tmp/code; setsid sh -c "{command}; echo \\$? >/tmp/code" >/dev/null 2>&1 &'
        )
        query = ("squeue", "-h", "-n", "interactive", "-t", "R", "-o", "%A")
        eventually("the srun has a job", lambda: self.slurm.login(*query) != "")
        return Job(self.slurm, self.slurm.login(*query)).wait_running()

    def read_decisions(self) -> dict[str, Any]:
        """What the administrator decided about nodes, with the reason and the author."""
        nodes = {name: self.slurm.node(name) for name in ("a-1", "a-2")}
        return {
            name: ({"DOWN", "DRAIN"} & set(node["state"]), node["reason"], node["reason_set_by_user"])
            for name, node in nodes.items()
        }

    def read_reservations(self) -> list[str]:
        return sorted(self.slurm.login("scontrol", "--oneliner", "show", "reservation").splitlines())

    def look(self, step: str) -> None:
        """Note which jobs no longer run, or are suspended, where they started."""
        rows = self.slurm.login("squeue", "-h", "-p", "a,b", "-o", "%A|%T|%N").splitlines()
        found = {number: (state, nodes) for number, state, nodes in (row.split("|") for row in rows)}
        for job in self.jobs:
            expected = ("SUSPENDED" if job is self.suspended else "RUNNING", job.nodes)
            if found.get(job.number) != expected:
                self.problems.append(f"after {step}: job {job} was {expected} and is {found.get(job.number)}")

    def assert_nothing_lost(self) -> None:
        found = (self.problems, self.read_reservations(), self.read_decisions())
        assert found == ([], self.reservations, self.decisions)

    # What the administrator does

    def scale_in_and_out(self) -> None:
        """The workers go, and what jobs and reservations name stays known to Slurm."""
        self.slurm.scale("a", 2)
        eventually("two workers are left", lambda: set(self.slurm.pods("a")) == {"a-0", "a-1"}, timeout=90)
        self.slurm.scale("a", 4)
        eventually("four again", lambda: len(self.slurm.pods("a")) == 4, timeout=60)
        for name in ("a-2", "a-3"):
            self.slurm.cluster.wait(self.slurm.namespace, f"pod/{name}", "condition=Ready")
        self.slurm.wait_state("a-3", "IDLE", timeout=90)

    def update_the_image(self) -> None:
        """Both workers of b wait for jobs that run on them or name them."""
        self.slurm.patch("nodeset", "b", {"spec": {"slurmd": {"image": NEW_IMAGE}}})
        self.wait_seen("b")

    def rename(self) -> None:
        """Another prefix gives the workers and the partition of b another name, once the jobs have ended."""
        self.slurm.patch("nodeset", "b", {"spec": {"template": {"spec": {"hostname": "c-"}}}})
        self.wait_seen("b")

    def switch_the_partition(self) -> None:
        for enabled in (False, True):
            self.slurm.patch("nodeset", "a", {"spec": {"partition": {"enabled": enabled}}})
            self.wait_seen("a")
            self.look(f"partition of a: enabled {enabled}")

    def recreate_the_kubernetes_node(self) -> None:
        """The Node of a-0 is cordoned, deleted and created again; no pod with a job is lost."""
        kubectl, pods = self.slurm.cluster.kubectl, self.uids()
        home = self.slurm.get("pod", "a-0")["spec"]["nodeName"]
        kubectl("cordon", home)
        eventually("a-0 is drained", self.is_drained)
        node = kubectl.json("get", "node", home)
        kubectl("delete", "node", home)
        try:
            never("a-0 is undrained", lambda: not self.is_drained(), NODE_AWAY_SECONDS)
        except AssertionError as error:
            self.problems.append(f"without its Node: {error}")
        finally:
            kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
            kubectl("create", "-f", "-", stdin=json.dumps({**node, "metadata": kept}))
            kubectl("wait", f"node/{home}", "--for=condition=Ready", "--timeout=60s", timeout=90)
            kubectl("uncordon", home)
        eventually("a-0 is undrained", lambda: not self.is_drained(), timeout=90)
        if self.uids() != pods:
            self.problems.append(f"with its Node back: pods {pods} are {self.uids()}")

    def replace_the_restapi(self) -> None:
        self.slurm.kubectl("delete", "restapi", "slurm", timeout=60)
        self.slurm.apply(part("RestApi"))
        self.slurm.wait_ready("restapi/slurm")

    def kill_slurmctld(self) -> None:
        save_state(self.slurm, self.listed[0].number)
        before = self.restarts()
        kill_daemon(self.slurm, "slurm-controller-0", "slurmctld", "slurmctld")
        eventually("slurmctld was started again", lambda: self.restarts() > before, timeout=60)
        eventually("it answers", lambda: answers(self.slurm, "squeue"), timeout=90)
        self.slurm.wait_ready("controller/slurm")

    def rotate_the_key(self) -> None:
        key = slurm_key()
        replace_key(self.slurm, "slurm.key", key)
        eventually("the new key is alone in the ring", lambda: ring(self.slurm) == KeyRing.of(key), timeout=240)
        for worker in ("a-0", "a-1", "a-2", "a-3", "b-0", "b-1"):
            eventually(f"{worker} holds it alone", partial(holds, self.slurm, worker, key), timeout=90)
        for kind in ("controller/slurm", "accounting/slurm"):
            self.slurm.wait_ready(kind)
        eventually("slurmctld answers", lambda: answers(self.slurm, "squeue"), timeout=60)
        eventually("slurmdbd answers", lambda: answers(self.slurm, "sacctmgr", "-n", "show", "cluster"), timeout=90)

    # What the steps wait for

    def wait_seen(self, nodeset: str) -> None:
        """Wait until the operator has decided about a NodeSet as it is now and slurmctld has what follows from it."""

        def seen() -> bool:
            found = self.slurm.get("nodeset", nodeset)
            conditions = found.get("status", {}).get("conditions", [])
            generations = {c.get("observedGeneration") for c in conditions}
            return generations == {found["metadata"]["generation"]}

        eventually(f"the operator has seen nodeset/{nodeset}", seen, timeout=60)
        self.slurm.wait_ready("controller/slurm")

    def is_drained(self) -> bool:
        return self.slurm.node_state("a-0") in ("DRAINING", "DRAINED")

    def uids(self) -> dict[str, str]:
        """Pods of the workers that have jobs."""
        found = {**self.slurm.pods("a"), **self.slurm.pods("b")}
        return {name: found[name]["metadata"]["uid"] for name in {job.nodes for job in self.jobs} & found.keys()}

    def restarts(self) -> int:
        statuses = self.slurm.get("pod", "slurm-controller-0")["status"]["containerStatuses"]
        return sum(status["restartCount"] for status in statuses if status["name"] == "slurmctld")


def test_no_job_and_no_decision_is_lost_on_an_administrators_day(workers: Slurm) -> None:
    began = time.monotonic()
    day = Day(workers)
    day.look("start")
    for step in (
        day.scale_in_and_out,
        day.update_the_image,
        day.rename,
        day.switch_the_partition,
        day.recreate_the_kubernetes_node,
        day.replace_the_restapi,
        day.kill_slurmctld,
        day.rotate_the_key,
    ):
        with stopwatch(step.__name__):
            step()
        day.look(step.__name__)
    print(f"all steps: {time.monotonic() - began:.0f} s")
    day.assert_nothing_lost()
    workers.login("scontrol", "resume", str(day.suspended))
    workers.wait_job(str(day.suspended), "RUNNING")
    for job in day.jobs:
        job.assert_undisturbed(timeout=JOB_SECONDS + 60)
    eventually("the srun has ended", lambda: answers(workers, "cat", "/tmp/code"), timeout=30)
    assert workers.login("cat", "/tmp/code", "/tmp/said").split() == ["0", "b-0"]
    day.assert_nothing_lost()
    workers.wait_ready("nodeset/b", timeout=180)
    assert workers.nodes("c") == ["c-0", "c-1"]
    images = {pod["spec"]["containers"][0]["image"] for pod in workers.pods("b").values()}
    assert images == {NEW_IMAGE}
    day.assert_nothing_lost()
