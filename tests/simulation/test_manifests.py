"""Files of manifests of any kind, applied and deleted as kubectl would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.manifests import Manifests, read
from tests.fakes.apiserver import FakeApiServer

FILE = """
apiVersion: v1
kind: Namespace
metadata: {name: place}
---
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: workers, namespace: place}
spec: {replicas: 2}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
"""


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def manifests(server: FakeApiServer) -> AsyncIterator[Manifests]:
    async with Client(KubeConfig(server.url)) as client:
        yield Manifests(client, "test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "all.yaml"
    path.write_text(FILE)
    return path


def objects(server: FakeApiServer) -> set[tuple[str, str, str]]:
    found = server.cluster.storage.everything()
    made = {(kind.kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for kind, obj in found}
    return made - {("Namespace", "", "default"), ("Namespace", "", "kube-system")}


async def test_applied_in_order_and_deleted_in_reverse(server: FakeApiServer, manifests: Manifests, file: Path) -> None:
    documents = read(file)
    await manifests.apply(documents)
    await manifests.apply(documents)
    assert objects(server) == {
        ("Namespace", "", "place"),
        ("NodeSet", "place", "workers"),
        ("ConfigMap", "default", "settings"),
    }
    await manifests.delete(documents)
    await manifests.delete(documents)
    assert objects(server) == set()
    assert [line.resource for line in server.log("delete")][:3] == ["configmaps", "nodesets", "namespaces"]


@pytest.mark.parametrize(
    ("manifest", "hint"),
    [
        ({"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Nodeset", "metadata": {"name": "x"}}, "install the CRDs"),
        ({"apiVersion": "nothing.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}, ""),
    ],
)
async def test_a_kind_that_is_not_served(manifests: Manifests, manifest: dict[str, Any], hint: str) -> None:
    with pytest.raises(UserError, match=f"the server knows no {manifest['kind']}") as refusal:
        await manifests.apply([manifest])
    assert hint in refusal.value.hint
    await manifests.delete([manifest])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        read(tmp_path / "absent.yaml")
    garbled = tmp_path / "garbled.yaml"
    garbled.write_text("{{{")
    with pytest.raises(UserError, match="is not YAML"):
        read(garbled)
