"""The Secrets and ConfigMaps that our objects refer to by name: watched one by one, never all of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from slurm_operator.api.common import KeyReferences, SecretKeySelector
from slurm_operator.kube.kinds import CONFIG_MAPS, SECRETS, ConfigMap, Secret
from slurm_operator.kube.named import NamedWatches
from slurm_operator.kube.resource import Key, Object
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.trouble import Trouble

Owner = tuple[str, Key]
"""Kind and key of the object that refers to something."""

T = TypeVar("T", bound=Object)

LOADING = 0.2
"""Seconds until a watch that has just begun has answered."""
REFUSED = 30.0
"""Seconds between two looks whether a right that was missing has been granted."""


@dataclass(frozen=True, slots=True)
class Refs:
    """What one object refers to, by name; None for what does not exist."""

    secrets: Mapping[str, Secret | None]
    config_maps: Mapping[str, ConfigMap | None]
    loading: bool
    """Not every answer is in yet, so nothing may be said to be missing."""
    refused: Trouble | None = None
    """Why an answer does not come: the API server refuses to let us read it."""

    @property
    def after(self) -> float:
        """Seconds until a look at what is still loading is worth it."""
        return LOADING if self.refused is None else REFUSED

    def secret(self, name: str) -> Mapping[str, bytes]:
        found = self.secrets.get(name)
        return found.data if found is not None else {}

    def entry(self, ref: SecretKeySelector | None) -> Mapping[str, bytes]:
        """The one entry of a Secret that a field names. What else is in that Secret is not its concern."""
        value = self.secret(ref.name).get(ref.key) if ref is not None else None
        return {ref.key: value} if ref is not None and value is not None else {}

    def config_map(self, name: str) -> Mapping[str, str]:
        found = self.config_maps.get(name)
        return found.data if found is not None else {}

    def missing_secret(self, namespace: str, ref: SecretKeySelector | None, field: str) -> Trouble | None:
        """What is wrong with the Secret that a field names."""
        if ref is None:
            return None
        found = self.secrets.get(ref.name)
        if found is None:
            cure = f"create it with the key {ref.key}, or correct {field}"
            return Trouble("SecretNotFound", f"Secret {namespace}/{ref.name} does not exist: {cure}")
        if ref.key not in found.data:
            cure = f"add it, or correct {field}"
            return Trouble("SecretKeyNotFound", f"Secret {namespace}/{ref.name} has no key {ref.key}: {cure}")
        return None

    def missing_config_map(self, namespace: str, name: str, field: str, key: str = "") -> Trouble | None:
        """What is wrong with the ConfigMap, or the one key of it, that a field names."""
        found = self.config_maps.get(name)
        if found is None:
            cure = f"create it, or correct {field}"
            return Trouble("ConfigMapNotFound", f"ConfigMap {namespace}/{name} does not exist: {cure}")
        if key and key not in found.data:
            cure = f"add it, or correct {field}"
            return Trouble("ConfigMapKeyNotFound", f"ConfigMap {namespace}/{name} has no key {key}: {cure}")
        return None

    def missing_keys(self, namespace: str, keys: KeyReferences) -> Trouble | None:
        """The first key of a cluster that is not there."""
        jwks = keys.jwks_key_ref
        return (
            self.missing_secret(namespace, keys.slurm_key_ref, "slurmKeyRef")
            or self.missing_secret(namespace, keys.jwt_key, "jwtKeyRef")
            or (self.missing_config_map(namespace, jwks.name, "jwksKeyRef", jwks.key) if jwks is not None else None)
        )


class References:
    def __init__(self, caches: Caches) -> None:
        self._secrets = caches.named(SECRETS)
        self._config_maps = caches.named(CONFIG_MAPS)
        self._owners: dict[tuple[str, Key], set[Owner]] = {}
        self._queues: dict[str, Queue] = {}
        self._secrets.store.subscribe(lambda old, new: self._wake("Secret", old or new))
        self._config_maps.store.subscribe(lambda old, new: self._wake("ConfigMap", old or new))

    def wake(self, kind: str, queue: Queue) -> None:
        """Objects of this kind are looked at again when something they refer to changes."""
        self._queues[kind] = queue

    def read(
        self, owner: Owner, namespace: str, *, secrets: Iterable[str] = (), config_maps: Iterable[str] = ()
    ) -> Refs:
        """From now on the owner refers to exactly these."""
        secret_names, map_names = {*secrets} - {""}, {*config_maps} - {""}
        self._own(owner, namespace, {"Secret": secret_names, "ConfigMap": map_names})
        found_secrets, secrets_awaited = _look(self._secrets, owner, namespace, secret_names)
        found_maps, maps_awaited = _look(self._config_maps, owner, namespace, map_names)
        refusals = (
            *_refusals("Secret", self._secrets, namespace, secrets_awaited),
            *_refusals("ConfigMap", self._config_maps, namespace, maps_awaited),
        )
        return Refs(found_secrets, found_maps, bool(secrets_awaited or maps_awaited), next(iter(refusals), None))

    def drop(self, owner: Owner) -> None:
        """The owner is gone."""
        self.read(owner, "")

    def _own(self, owner: Owner, namespace: str, wanted: Mapping[str, set[str]]) -> None:
        keys = {(kind, (namespace, name)) for kind, names in wanted.items() for name in names}
        for key in [key for key, owners in self._owners.items() if owner in owners and key not in keys]:
            self._owners[key].discard(owner)
            if not self._owners[key]:
                del self._owners[key]
        for key in keys:
            self._owners.setdefault(key, set()).add(owner)

    def _wake(self, kind: str, obj: Secret | ConfigMap | None) -> None:
        if obj is None:
            return
        for owner_kind, key in self._owners.get((kind, (obj.metadata.namespace, obj.metadata.name)), ()):
            if owner_kind in self._queues:
                self._queues[owner_kind].add(key)


def _look(
    watches: NamedWatches[T], owner: Owner, namespace: str, names: set[str]
) -> tuple[dict[str, T | None], list[str]]:
    """Return what is known by name, and the names of which nothing is known yet."""
    watches.ensure(owner, {(namespace, name) for name in names})
    awaited = sorted(name for name in names if not watches.known(namespace, name))
    return {name: watches.store.get(namespace, name) for name in names}, awaited


def _refusals(kind: str, watches: NamedWatches[T], namespace: str, names: Iterable[str]) -> Iterator[Trouble]:
    for name in names:
        error = watches.refusal(namespace, name)
        if error is not None:
            cure = f"; {error.hint}" if error.hint else ""
            yield Trouble("Forbidden", f"{kind} {namespace}/{name} may not be read: {error.message}{cure}")
