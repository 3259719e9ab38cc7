"""Commands run as a user runs them: with a kubeconfig that leads to the in-memory API server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_operator.cli import main
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from tests.fakes.apiserver import FakeApiServer


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as found:
        yield found


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(KubeConfig(server.url)) as found:
        yield found


@pytest.fixture
def kubeconfig(server: FakeApiServer, tmp_path: Path) -> Path:
    named = {"clusters": "cluster", "users": "user", "contexts": "context"}
    content: dict[str, dict[str, Any]] = {
        "cluster": {"server": server.url},
        "user": {},
        "context": {"cluster": "fake", "user": "fake"},
    }
    config = {plural: [{"name": "fake", one: content[one]}] for plural, one in named.items()}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "fake", **config}))
    return file


Command = Callable[..., Coroutine[Any, Any, int]]


@pytest.fixture
def command(kubeconfig: Path) -> Command:
    """Runs a command in a thread of its own, as it brings its own event loop; returns its exit code."""

    async def run(*words: str) -> int:
        return await asyncio.to_thread(main, [*words, "--kubeconfig", str(kubeconfig)])

    return run
