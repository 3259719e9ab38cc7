"""Whole files of manifests, of whatever kinds: what `kubectl apply -f` and `kubectl delete -f` do."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.model import Partial
from slurm_operator.kube.resource import Manifest, Resource


def read(file: Path) -> list[Manifest]:
    """Every document of a YAML file."""
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    return [document for document in documents if document]


class Manifests:
    def __init__(self, client: Client, manager: str, namespace: str = "default") -> None:
        self._client = client
        self._manager = manager
        self._namespace = namespace
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """In their order, each with our field manager; fields of others stay."""
        for manifest in manifests:
            resource = await self.resource_of(manifest)
            await self._client.apply(resource, self._placed(resource, manifest), manager=self._manager)

    async def delete(self, manifests: Iterable[Manifest]) -> None:
        """In reverse order; what is gone already, or was never known, is fine."""
        for manifest in reversed(list(manifests)):
            try:
                resource = await self.resource_of(manifest)
            except UserError:
                continue
            meta = self._placed(resource, manifest)["metadata"]
            try:
                await self._client.delete(resource, meta["name"], meta.get("namespace"), propagation="Background")
            except NotFound:
                continue

    async def resource_of(self, manifest: Manifest) -> Resource[Partial]:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if kind not in self._kinds.get(version, {}):
            try:
                self._kinds[version] = await self._client.kinds(version)
            except NotFound:
                self._kinds[version] = {}
        if kind not in self._kinds[version]:
            hint = "install the CRDs first" if version.startswith("slinky.slurm.net/") else ""
            raise UserError(f"the server knows no {kind} in {version}", hint)
        plural, namespaced = self._kinds[version][kind]
        group, _, number = version.rpartition("/")
        return Resource(group, number, kind, plural, Partial, namespaced)

    def _placed(self, resource: Resource[Partial], manifest: Manifest) -> Manifest:
        meta = manifest["metadata"]
        if not resource.namespaced or meta.get("namespace"):
            return manifest
        return {**manifest, "metadata": {**meta, "namespace": self._namespace}}
