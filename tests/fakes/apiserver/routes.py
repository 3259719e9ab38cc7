"""From a method and a path to what is asked of which object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.fakes.apiserver.kinds import Kind, Registry
from tests.fakes.apiserver.status import UnknownPath, unknown_resource

PATCHES = {
    "application/apply-patch+yaml": "apply",
    "application/apply-patch+cbor": "apply",
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
TRUE = frozenset({"true", "1"})


@dataclass(frozen=True, slots=True)
class Target:
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        return self.kind.plural + (f"/{self.subresource}" if self.subresource else "")


def kinds_served_at(path: str, kinds: Registry) -> list[Kind]:
    """The kinds of a group's version, if that is what the path names."""
    return [kind for kind in kinds if kind.root == path.rstrip("/")]


def resource_list(kinds: list[Kind]) -> dict[str, object]:
    """How the server tells what it serves."""
    entries = []
    for kind in kinds:
        subresources = [("", True), ("/status", kind.has_status), ("/scale", kind.has_scale)]
        names = [kind.plural + suffix for suffix, offered in subresources if offered]
        entries += [{"name": name, "kind": kind.kind, "namespaced": kind.namespaced, "verbs": []} for name in names]
    version = kinds[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": entries}


def find_target(path: str, kinds: Registry) -> Target:
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise UnknownPath
    if not kinds.serves(group, version):
        raise UnknownPath
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        _, namespace, *rest = rest
    plural, name, subresource, *too_much = (*rest, "", "", "")[: max(3, len(rest))]
    kind = kinds.at(group, version, plural)
    if kind is None or too_much or (namespace and not kind.namespaced):
        raise unknown_resource()
    return Target(kind, namespace, name, subresource)


def verb_of(method: str, target: Target, query: Mapping[str, str], content_type: str) -> str:
    match method:
        case "GET" if target.name:
            return "get"
        case "GET":
            return "watch" if query.get("watch", "").lower() in TRUE else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "apply" if PATCHES.get(content_type) == "apply" else "patch"
        case _:
            return "delete" if target.name else "deletecollection"
