"""The Secret that carries the auth/slurm keys in use to all daemons of a cluster: what a rotation changes step by step.

Pods mount this one and not the user's, which changes all at once and for everybody at a different moment.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_operator.api import Accounting, Controller, names
from slurm_operator.api.common import SecretKeySelector
from slurm_operator.desired import metadata
from slurm_operator.kube.kinds import Secret
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.references import Refs
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.keys import SHORTEST_KEY, KeyRing

Member = Controller | Accounting
"""Whose daemons hold the keys."""
Rings = Mapping[str, KeyRing]
"""By the key of the user's Secret that they are made from."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the keys have come."""

    since: int
    """Second since 1970 in which they last changed."""
    settled: str
    """Hash of those that all workers have read."""
    waiting: str = ""


def key_ring(namespace: str, secret: str, owners: Iterable[Member], rings: Rings, progress: Progress) -> Manifest:
    """Owned by all who use it, so that it goes with the last one."""
    notes = {
        names.ANNOTATION_RING_SINCE: str(progress.since),
        names.ANNOTATION_RING_SETTLED: progress.settled,
        names.ANNOTATION_RING_WAITING: progress.waiting,
    }
    ordered = sorted(owners, key=lambda owner: (type(owner).__name__, owner.metadata.name))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": names.key_ring(secret),
            "namespace": namespace,
            "labels": {names.LABEL_APP: names.APP_KEYRING},
            "annotations": {key: text for key, text in notes.items() if text},
            "ownerReferences": [metadata.owner(owner, controller=False) for owner in ordered],
        },
        "data": {key: b64encode(ring.file().encode()).decode() for key, ring in rings.items()},
    }


def unfit_key(refs: Refs, ref: SecretKeySelector | None) -> Trouble | None:
    """What is wrong with the key that users gave, as auth/slurm would see it."""
    found = refs.secret(ref.name).get(ref.key, b"") if ref is not None else b""
    if ref is None or len(found) >= SHORTEST_KEY:
        return None
    cure = "make a new one, for instance with `slurm-operator keys`"
    told = f"key {ref.key} of Secret {ref.name} has {len(found)} bytes, but auth/slurm wants {SHORTEST_KEY}: {cure}"
    return Trouble("KeyTooShort", told)


def rings_of(secret: Secret) -> dict[str, KeyRing]:
    """The keys that a ring carries; what nobody could have written with `key_ring` is left out."""
    read = {key: KeyRing.read(file) for key, file in secret.data.items()}
    return {key: ring for key, ring in read.items() if ring is not None}


def rings_hash(rings: Rings) -> str:
    return metadata.content_hash({key: ring.file() for key, ring in rings.items()})


def progress_of(secret: Secret) -> Progress:
    notes = secret.metadata.annotations
    since = notes.get(names.ANNOTATION_RING_SINCE, "")
    return Progress(
        int(since) if since.isdecimal() else 0,
        notes.get(names.ANNOTATION_RING_SETTLED, ""),
        notes.get(names.ANNOTATION_RING_WAITING, ""),
    )
