"""The controllers' part of the contract on a real kube-controller-manager."""

from collections.abc import AsyncIterator

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.kube.config import load
from tests.contract.controlling import Controlling
from tests.contract.server import ContractServer, connect


@pytest.fixture
async def server(api_server: ApiServer, simulated_nodes: SimulatedNodes) -> AsyncIterator[ContractServer]:
    async with connect(load(str(api_server.kubeconfig))) as server:
        yield server


class TestControlling(Controlling): ...
