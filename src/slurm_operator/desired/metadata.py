"""Metadata of generated objects: who owns them, which labels and annotations they carry, and content hashes.

A child inherits the labels of its resource, and its annotations unless they are a tool's own notes. Pods inherit no
annotations at all: editing a note on the resource must not restart a daemon.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from slurm_operator.api import Object, names
from slurm_operator.api.common import Metadata
from slurm_operator.kube.resource import Manifest

# Notes by which kubectl, Helm and Argo CD know their own objects; copied, the child would pass for one of them.
_TOOLS = ("kubectl.kubernetes.io/", "meta.helm.sh/", "argocd.argoproj.io/")


def owner(resource: Object, *, controller: bool = True) -> Manifest:
    """The reference by which a child is garbage-collected with its resource."""
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": type(resource).__name__,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "blockOwnerDeletion": True,
    }
    return {**reference, "controller": True} if controller else reference


def child(
    resource: Object, name: str, labels: Mapping[str, str], extra: Metadata | None = None, **more: Any
) -> Manifest:
    """Metadata of a child: the resource's, then the user's for this child, then ours."""
    inherited = {key: text for key, text in resource.metadata.annotations.items() if not key.startswith(_TOOLS)}
    wished = extra or Metadata()
    return _filled(
        name=name,
        namespace=resource.metadata.namespace,
        labels={**resource.metadata.labels, **wished.labels, **labels},
        annotations={**inherited, **wished.annotations},
        ownerReferences=[owner(resource)],
        **more,
    )


def pod(
    resource: Object, labels: Mapping[str, str], template: Metadata, annotations: Mapping[str, str], container: str
) -> Manifest:
    """Metadata of a pod template."""
    return _filled(
        labels={**resource.metadata.labels, **template.labels, **labels},
        annotations={**template.annotations, **annotations, names.ANNOTATION_DEFAULT_CONTAINER: container},
    )


def labels(app: str, component: str, instance: str) -> dict[str, str]:
    return {**names.selector(app, instance), names.LABEL_COMPONENT: component}


def content_hash(data: Mapping[str, str | bytes]) -> str:
    """One hash over all values, in the order of their keys; nothing hashes to nothing."""
    if not data:
        return ""
    return text_hash(b"".join(_bytes(data[key]) for key in sorted(data)))


def text_hash(text: str | bytes) -> str:
    return hashlib.sha256(_bytes(text)).hexdigest()


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _filled(**fields: Any) -> Manifest:
    return {key: value for key, value in fields.items() if value}
