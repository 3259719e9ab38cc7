"""The ring on a real kube-apiserver: one server for the whole run, a fresh namespace for each test."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.binaries import binaries
from slurm_local.machine import machine_root
from slurm_local.simulation import SimulatedNodes
from tests.prepare import items_below, make_before_tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kube)


def pytest_collection_finish(session: pytest.Session) -> None:
    if items_below(session, Path(__file__).parent):
        make_before_tests(session, binaries, machine_root)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """etcd and kube-apiserver, ready to serve."""
    server = ApiServer(tmp_path_factory.mktemp("api-server"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def simulated_nodes(api_server: ApiServer) -> Iterator[SimulatedNodes]:
    """The same server with its controllers, its scheduler and kwok: pods are placed and "run" on nodes in name only."""
    nodes = SimulatedNodes(api_server)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """The name of a namespace that this test has for itself."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    subprocess.run(api_server.kubectl("create", "namespace", name), check=True, stdout=subprocess.DEVNULL)
    yield name
    subprocess.run(
        api_server.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found"),
        check=True,
        stdout=subprocess.DEVNULL,
    )
