"""The ring on the real stage: one for the whole run, kept for the next with KEEP=1; a fresh namespace for each test."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_local.binaries import binaries
from slurm_local.debian import make_root
from slurm_local.emulator import emulator_root
from slurm_local.images import build
from slurm_local.machine import machine_root
from slurm_local.node import NodeSettings
from slurm_local.progress import Progress
from slurm_local.recipes import load
from slurm_local.stage import down, up
from tests.e2e.job import disturbed
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers
from tests.e2e.stage import Cluster, eventually, write_test_image
from tests.prepare import items_below, make_before_tests

NAME = os.environ.get("STAGE", "e2e")
NODES = 3
GPUS = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


def pytest_collection_finish(session: pytest.Session) -> None:
    items = items_below(session, Path(__file__).parent)
    if items:
        make_before_tests(session, binaries, machine_root)
    if any("images" in getattr(item, "fixturenames", ()) for item in items):
        make_before_tests(session, lambda progress: build(progress=progress))
    if any("emulated" in getattr(item, "fixturenames", ()) for item in items):
        make_before_tests(session, lambda progress: make_root(load("slurm").root, progress), emulator_root)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three real nodes, all Ready, with the test image on each."""
    nodes = [NodeSettings(index=index, gpus=GPUS) for index in range(1, NODES + 1)]
    keep = bool(os.environ.get("KEEP"))
    try:
        stage = up(NAME, nodes, Progress())
        archive = tmp_path_factory.mktemp("images") / "busybox.tar"
        write_test_image(stage.root, archive)
        stage.load_image(archive)
        yield Cluster(stage)
    finally:
        if not keep:
            down(NAME)


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> list[Path]:
    """Every image of the project, on every node."""
    archives = build()
    for archive in archives:
        cluster.stage.load_image(archive)
    return archives


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a namespace that this test has for itself."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", name)
    # Pods of a namespace that is seconds old would otherwise be refused: they run as its default account.
    cluster.kubectl("wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=30s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def operator(cluster: Cluster, images: list[Path]) -> Cluster:
    """The operator as users run it: a pod with exactly the rights of its role."""
    command = [str(Path(sys.executable).parent / "slurm-operator"), "install", "--kubeconfig", str(cluster.kubeconfig)]
    subprocess.run(command, check=True, timeout=180)
    return cluster


@pytest.fixture(scope="session")
def slurm(operator: Cluster) -> Iterator[Slurm]:
    """The example cluster, ready, shared by all tests that only want a Slurm to work with."""
    shared = Slurm(operator, "slurm")
    shared.create()
    yield shared
    operator.kubectl("delete", "namespace", shared.namespace, "--wait=false")


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test with the shared cluster: every job ran once and was COMPLETED, unless the test excused it."""
    shared = request.getfixturevalue("slurm") if "slurm" in request.fixturenames else None
    yield
    if isinstance(shared, Slurm):
        for left in shared.login("squeue", "-h", "-o", "%A").split():
            shared.cancel(left)
        eventually("the accounting answers", lambda: answers(shared, "sacctmgr", "-n", "show", "cluster"))
        found = disturbed(shared)
        shared.excused.update(found)
        assert found == {}


@pytest.fixture
def flex(slurm: Slurm) -> Iterator[str]:
    """A NodeSet of one worker that a test may bend as it likes."""
    slurm.apply(slurm.nodeset("flex", 1))
    slurm.wait_ready("nodeset/flex")
    yield "flex"
    slurm.login("scancel", "--partition=flex")
    slurm.kubectl("delete", "nodeset", "flex", "--ignore-not-found", timeout=120)
    eventually("all workers are gone", lambda: slurm.pods("flex") == {}, timeout=60)
