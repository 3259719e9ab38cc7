"""Makes a volume for each claim of the stage's storage classes: a folder of one node, or one that all nodes share."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from msgspec import field

from slurm_local.addons import LOCAL_CLASS, PROVISIONER, SHARED_CLASS
from slurm_local.cache import remove_tree
from slurm_local.node import SHARED, VOLUMES
from slurm_operator.kube import (
    AlreadyExists,
    ApiError,
    Client,
    Manifest,
    Model,
    NotFound,
    Reflector,
    Resource,
    Store,
    load,
)

log = logging.getLogger("provisioner")

SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_RETRY_SECONDS = 2.0


class Metadata(Model):
    """With every annotation, where the operator's own keeps only those that it reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)


class ClaimSpec(Model):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: dict[str, Any] = field(default_factory=dict)


class Claim(Model):
    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()


class LocalFolder(Model):
    path: str = ""


class VolumeSpec(Model):
    local: LocalFolder = LocalFolder()
    persistent_volume_reclaim_policy: str = ""


class VolumeStatus(Model):
    phase: str = ""


class Volume(Model):
    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", Claim)
VOLUMES_OF_CLUSTER = Resource("", "v1", "PersistentVolume", "persistentvolumes", Volume, namespaced=False)


def volume_for(claim: Claim) -> Manifest | None:
    """The volume that a claim waits for; None if it is not ours, has one, or its pod has no node yet."""
    spec, metadata = claim.spec, claim.metadata
    name = f"pvc-{metadata.uid}"
    node = metadata.annotations.get(SELECTED_NODE, "")
    if spec.volume_name or metadata.deletion_timestamp or spec.volume_mode != "Filesystem":
        return None
    if spec.storage_class_name == LOCAL_CLASS and node:
        path, key, value = f"{VOLUMES}/{name}", "kubernetes.io/hostname", node
    elif spec.storage_class_name == SHARED_CLASS:
        path, key, value = f"{SHARED}/{name}", "kubernetes.io/os", "linux"
    else:
        return None
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "storageClassName": spec.storage_class_name,
            "accessModes": list(spec.access_modes),
            "capacity": {"storage": spec.resources.get("requests", {}).get("storage", "1Gi")},
            "persistentVolumeReclaimPolicy": "Delete",
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            },
        },
    }


def is_done_with(volume: Volume) -> bool:
    """Whether a volume of ours lost its claim and is to go with its content."""
    return (
        volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        and volume.status.phase in {"Released", "Failed"}
        and volume.spec.persistent_volume_reclaim_policy == "Delete"
        and not volume.metadata.deletion_timestamp
    )


def folders_of(stage: Path, path: str) -> list[Path]:
    """Where a path inside the nodes can lie in the stage's folder."""
    if path.startswith(SHARED):
        return [stage / "shared" / Path(path).name]
    return [nodes / Path(path).name for nodes in sorted((stage / "volumes").iterdir())]


class Provisioner:
    def __init__(self, stage: Path, client: Client) -> None:
        self._stage = stage
        self._client = client
        self._claims: Store[Claim] = Store()
        self._volumes: Store[Volume] = Store()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        for store in (self._claims, self._volumes):
            store.subscribe(lambda _old, _new: self._changed.set())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reflector(self._client, CLAIMS, self._claims, fail_fast=False).run())
            tasks.create_task(Reflector(self._client, VOLUMES_OF_CLUSTER, self._volumes, fail_fast=False).run())
            tasks.create_task(self._work())

    async def _work(self) -> None:
        await self._claims.synced.wait()
        await self._volumes.synced.wait()
        while True:
            self._changed.clear()
            try:
                await self._provision()
                await self._clean_up()
            except (ApiError, OSError) as error:
                log.warning("%s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await self._changed.wait()

    async def _provision(self) -> None:
        for claim in self._claims.all():
            manifest = volume_for(claim)
            if manifest is None or self._volumes.get("", manifest["metadata"]["name"]):
                continue
            node = claim.metadata.annotations.get(SELECTED_NODE, "")
            self._make_folder(manifest["spec"]["local"]["path"], node)
            try:
                self._volumes.upsert(await self._client.create(VOLUMES_OF_CLUSTER, manifest))
            except AlreadyExists:
                log.info("%s exists already", manifest["metadata"]["name"])

    def _make_folder(self, path: str, node: str) -> None:
        parent = self._stage / "shared" if path.startswith(SHARED) else self._stage / "volumes" / node
        folder = parent / Path(path).name
        folder.mkdir(parents=True, exist_ok=True)
        # As a new file system: the kubelet gives it to the pod's fsGroup, and no other user may write.
        folder.chmod(0o755)

    async def _clean_up(self) -> None:
        for volume in self._volumes.all():
            if not is_done_with(volume):
                continue
            for folder in folders_of(self._stage, volume.spec.local.path):
                await asyncio.to_thread(remove_tree, folder)
            try:
                await self._client.delete(VOLUMES_OF_CLUSTER, volume.metadata.name)
            except NotFound:
                log.info("%s is gone already", volume.metadata.name)


async def serve(stage: Path, kubeconfig: str) -> None:
    async with Client(load(kubeconfig)) as client:
        await Provisioner(stage, client).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
