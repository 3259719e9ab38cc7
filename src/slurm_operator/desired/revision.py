"""Revisions of a NodeSet: the part of its spec that running pods cannot follow, and a short hash of it."""

import hashlib
import json

import msgspec

from slurm_operator.api import NodeSet, names
from slurm_operator.desired import metadata
from slurm_operator.kube.resource import Manifest

HASH_LENGTH = 10

# Partition, keys and the rest of the cluster's configuration reach running workers without a new pod.
_PARTS = ("slurmd", "logfile", "ssh", "extraConf", "ordinalPadding", "oversubscribeNode")


def revision_data(nodeset: NodeSet) -> Manifest:
    """A patch that would bring the NodeSet back to this revision."""
    spec = msgspec.to_builtins(nodeset.spec)
    parts = {part: spec[part] for part in _PARTS if part in spec}
    return {"spec": {"template": {**spec.get("template", {}), "$patch": "replace"}, **parts}}


def revision_hash(data: Manifest, collisions: int = 0) -> str:
    """Stable over restarts and the order of keys; `collisions` tells apart two revisions that hash alike."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{canonical}{collisions or ''}".encode()).hexdigest()[:HASH_LENGTH]


def controller_revision(nodeset: NodeSet, number: int, collisions: int = 0) -> Manifest:
    data = revision_data(nodeset)
    digest = revision_hash(data, collisions)
    labels = {
        **nodeset.spec.template.metadata.labels,
        **names.selector(names.APP_SLURMD, nodeset.metadata.name),
        names.LABEL_REVISION_HASH: digest,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata.child(nodeset, names.revision(nodeset.metadata.name, digest), labels),
        "data": _in_order(data),
        "revision": number,
    }


def _in_order(data: Manifest) -> Manifest:
    """Return the data with its keys in the API server's order, which keeps data as it was sent and writes it in order.

    In another order every patch by the garbage collector is refused as a change of the data.
    """
    ordered: Manifest = json.loads(json.dumps(data, sort_keys=True))
    return ordered
