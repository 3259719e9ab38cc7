"""Clusters, their namespace and the operator itself are removed, in whatever order: everything goes, nothing hangs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from slurm_operator.errors import UserError
from tests.e2e.small import Small
from tests.e2e.stage import Cluster, eventually

pytestmark = pytest.mark.timeout(300)


class Doomed(Small):
    """A small cluster with a job on its worker, and the three ways to be rid of it."""

    def delete_file(self) -> None:
        """What `kubectl delete -f` of its manifests does."""
        manifests = yaml.safe_dump_all(self.manifests())
        command = ("delete", "-n", self.namespace, "--ignore-not-found", "--timeout=120s", "-f", "-")
        try:
            self.cluster.kubectl(*command, stdin=manifests, timeout=150)
        except UserError as error:
            # With the namespace already gone, that is all there is to say.
            assert "not found" in str(error)  # noqa: PT017 - only then

    def delete_namespace(self) -> None:
        self.cluster.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--timeout=120s", timeout=150)

    def uninstall(self) -> None:
        command(self.cluster, "uninstall")


def command(cluster: Cluster, *words: str) -> None:
    program = str(Path(sys.executable).parent / "slurm-operator")
    subprocess.run([program, *words, "--kubeconfig", str(cluster.kubeconfig)], check=True, timeout=180)


@pytest.fixture
def doomed(operator: Cluster, namespace: str) -> Iterator[Doomed]:
    cluster = Doomed(operator, namespace)
    cluster.start()
    cluster.wait_job(cluster.submit(), "RUNNING")
    yield cluster
    command(operator, "install")


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


def test_a_nodeset_whose_restapi_is_gone_for_good_can_be_deleted(operator: Cluster, namespace: str) -> None:
    cluster = Small(operator, namespace)
    cluster.start(login=False)
    cluster.kubectl("delete", "restapi", "slurm", timeout=60)
    cluster.kubectl("delete", "nodeset", "work", "--wait=false")
    eventually(
        "it says whom it waits for",
        lambda: "work-0" in cluster.condition("nodeset", "work", "Progressing").get("message", ""),
        timeout=30,
    )
    cluster.kubectl("wait", "nodeset/work", "--for=delete", "--timeout=120s", timeout=150)
