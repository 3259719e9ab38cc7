"""Clusters, their namespace and the operator itself are removed, in whatever order: everything goes, nothing hangs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from slurm_operator.errors import UserError
from tests.e2e.job import Job, start_job
from tests.e2e.small import Small, part
from tests.e2e.stage import Cluster, eventually, never

pytestmark = pytest.mark.timeout(300)


class Doomed(Small):
    """A small cluster with a job on its worker, and the ways to remove it."""

    job: Job

    def delete_file(self) -> None:
        """What `kubectl delete -f` of its manifests does. The job ends with slurmctld, not before.

        Without an operator the workers stay until their namespace goes.
        """
        pods = self.pod_names()
        manifests = yaml.safe_dump_all(self.manifests())
        command = ("delete", "-n", self.namespace, "--ignore-not-found", "--wait=false", "-f", "-")
        try:
            self.cluster.kubectl(*command, stdin=manifests, timeout=60)
        except UserError as error:
            # With the namespace already gone, that is all there is to say.
            assert "not found" in str(error)  # noqa: PT017 - only then
        guarded = self.operator_is_there() and "slurm-controller-0" in pods

        def gone() -> bool:
            left = self.pod_names()
            if guarded and "slurm-controller-0" in left:
                assert "work-0" in left, "the worker was deleted while slurmctld still ran its job"
            doomed = {"slurm-controller-0", "work-0"} if guarded else {"slurm-controller-0"}
            return not left & doomed and self.nodesets() == ""

        eventually("the cluster is gone", gone, timeout=120, pause=0.2)

    def delete_namespace(self) -> None:
        """The end of everything in it, jobs included, which a person asks for by name."""
        self.cluster.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--timeout=120s", timeout=150)

    def uninstall(self) -> None:
        """The job goes on without the operator; --force then gives up the finalizer that guards it."""
        busy = "work-0" in self.pod_names()
        for options in ((), ("--force",)):
            done = run("uninstall", self.cluster, *options)
            assert done.returncode == 0, done.stderr
            assert not self.operator_is_there()
            if busy:
                self.job.assert_running()

    def pod_names(self) -> set[str]:
        """Pods that are not being deleted."""
        found = self.cluster.kubectl.json("get", "pods", "-n", self.namespace)["items"]
        return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def nodesets(self) -> str:
        return self.kubectl("get", "nodesets", "-o", "name")

    def operator_is_there(self) -> bool:
        query = ("get", "deployment", "slurm-operator", "-n", "slurm-operator", "--ignore-not-found", "-o", "name")
        return self.cluster.kubectl(*query) != ""


def run(verb: str, cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "slurm-operator")
    command = [program, verb, *options, "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


@pytest.fixture
def doomed(operator: Cluster, namespace: str) -> Iterator[Doomed]:
    cluster = Doomed(operator, namespace)
    cluster.start()
    cluster.job = start_job(cluster, "-p", "work")
    yield cluster
    assert run("install", operator).returncode == 0


@pytest.mark.parametrize(
    "order",
    [
        (Doomed.delete_file, Doomed.delete_namespace, Doomed.uninstall),
        (Doomed.delete_namespace, Doomed.uninstall, Doomed.delete_file),
        (Doomed.uninstall, Doomed.delete_file, Doomed.delete_namespace),
        (Doomed.uninstall, Doomed.delete_namespace, Doomed.delete_file),
    ],
    ids=lambda order: ", ".join(step.__name__ for step in order),
)
def test_removal_in_any_order_finishes(doomed: Doomed, order: tuple[Callable[[Doomed], None], ...]) -> None:
    for step in order:
        step(doomed)
    left = doomed.cluster.kubectl("get", "namespace", doomed.namespace, "--ignore-not-found", "-o", "name")
    assert left == ""


def test_an_uninstall_refuses_a_nodeset_that_waits_for_its_job(doomed: Doomed) -> None:
    """The finalizer of a NodeSet that is being deleted holds its workers until the job has ended."""
    add_bystander(doomed)
    doomed.kubectl("delete", "nodeset", "work", "--wait=false")
    wait_says(doomed, f"job {doomed.job} on work-0")
    refused = run("uninstall", doomed.cluster)
    assert refused.returncode != 0
    assert f"job {doomed.job} of root on work-0" in refused.stderr
    assert "--force" in refused.stderr
    assert doomed.operator_is_there()
    doomed.job.assert_running()
    doomed.job.finish()
    doomed.kubectl("wait", "nodeset/work", "--for=delete", "--timeout=60s", timeout=90)
    assert run("uninstall", doomed.cluster).returncode == 0


def add_bystander(cluster: Small) -> None:
    """Another NodeSet: slurmctld does not tell that the last record of all was deleted."""
    cluster.apply(cluster.nodeset("bystander", 1))
    cluster.wait_ready("nodeset/bystander")


def wait_says(cluster: Small, words: str) -> None:
    eventually(
        f"it says that it waits for {words}",
        lambda: words in cluster.condition("nodeset", "work", "Progressing").get("message", ""),
        timeout=60,
    )


def test_a_nodeset_whose_restapi_is_gone_waits_for_another(operator: Cluster, namespace: str) -> None:
    """Without a RestApi nothing is known of the jobs, so no worker goes."""
    cluster = Small(operator, namespace)
    cluster.start()
    add_bystander(cluster)
    job = start_job(cluster, "-p", "work")
    cluster.kubectl("delete", "restapi", "slurm", timeout=60)
    cluster.kubectl("delete", "nodeset", "work", "--wait=false")
    wait_says(cluster, "work-0")
    never("the worker is deleted", lambda: set(cluster.pods("work")) != {"work-0"}, seconds=10)
    job.assert_running()
    cluster.apply(part("RestApi"))
    wait_says(cluster, f"job {job} on work-0")
    job.finish()
    cluster.kubectl("wait", "nodeset/work", "--for=delete", "--timeout=60s", timeout=90)
