"""The same contract on a real kube-apiserver: what keeps the fake honest."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig, load
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS
from tests.contract.applying import Applying
from tests.contract.deleting import Deleting
from tests.contract.reading import Reading
from tests.contract.server import WIDGET_DEFINITION, WIDGETS, ContractServer, connect
from tests.contract.subresources import Subresources
from tests.contract.watching import Watching
from tests.contract.writing import Writing


@pytest.fixture(scope="module")
def config(api_server: ApiServer) -> KubeConfig:
    config = load(str(api_server.kubeconfig))
    asyncio.run(_define_widgets(config))
    return config


async def _define_widgets(config: KubeConfig) -> None:
    async with Client(config) as client, asyncio.timeout(60):
        await client.apply(CUSTOM_RESOURCE_DEFINITIONS, WIDGET_DEFINITION, manager="contract")
        while True:
            try:
                await client.list(WIDGETS)
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture
async def server(config: KubeConfig) -> AsyncIterator[ContractServer]:
    async with connect(config) as server:
        yield server


class TestReading(Reading): ...


class TestWriting(Writing): ...


class TestApplying(Applying): ...


class TestWatching(Watching): ...


class TestDeleting(Deleting): ...


class TestSubresources(Subresources): ...
