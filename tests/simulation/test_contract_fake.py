"""The contract of an API server, held to by the fake."""

from collections.abc import AsyncIterator

import pytest

from slurm_operator.kube.config import KubeConfig
from tests.contract.applying import Applying
from tests.contract.controlling import Controlling
from tests.contract.deleting import Deleting
from tests.contract.reading import Reading
from tests.contract.server import WIDGET_KIND, ContractServer, connect
from tests.contract.subresources import Subresources
from tests.contract.watching import Watching
from tests.contract.writing import Writing
from tests.fakes.apiserver import Cluster, FakeApiServer


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ContractServer]:
    """Without controllers, as a lone kube-apiserver, but where they are what is tested."""
    cluster = Cluster(kinds=[WIDGET_KIND], run_controllers=request.cls is TestControlling)
    async with FakeApiServer(cluster) as fake, connect(KubeConfig(fake.url)) as server:
        yield server


class TestReading(Reading): ...


class TestWriting(Writing): ...


class TestApplying(Applying): ...


class TestWatching(Watching): ...


class TestDeleting(Deleting): ...


class TestSubresources(Subresources): ...


class TestControlling(Controlling): ...
