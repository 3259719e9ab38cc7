"""Every verb but watch: from a decoded request to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.fakes.apiserver.cluster import Cluster, Writer
from tests.fakes.apiserver.routes import PATCHES, TRUE, Target
from tests.fakes.apiserver.selectors import selector
from tests.fakes.apiserver.status import Refusal, bad_request, from_the_future, unknown_resource

Json = dict[str, Any]
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: Json | str
    """A text is sent as it is."""


class Handlers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def answer(self, verb: str, target: Target, query: Query, body: bytes, content_type: str) -> Answer:
        if target.subresource not in ("", "status"):
            return self._subresource(verb, target, query, body, content_type)
        if target.subresource == "status" and not target.kind.has_status:
            raise unknown_resource()
        writer = Writer(
            query.get("fieldManager", ""),
            bool(query.get("dryRun")),
            query.get("force", "").lower() in TRUE,
            target.subresource,
        )
        cluster, kind, name, namespace = self._cluster, target.kind, target.name, target.namespace
        match verb:
            case "get":
                return Answer(200, cluster.get(kind, name, namespace))
            case "list":
                return Answer(200, self._list(target, query))
            case "create":
                return Answer(201, cluster.create(kind, _decode(body), namespace, writer))
            case "update":
                return Answer(200, cluster.update(kind, _decode(body), name, namespace, writer))
            case "patch":
                how = _patch_kind(content_type)
                return Answer(200, cluster.patch(kind, name, namespace, _decode_any(body), how, writer))
            case "apply":
                obj, is_new = cluster.apply(kind, name, namespace, _decode(body), writer)
                return Answer(201 if is_new else 200, obj)
            case "delete":
                return self._delete(target, _delete_options(query, body))
            case _:
                return self._delete_collection(target, query, _delete_options(query, body))

    def _list(self, target: Target, query: Query) -> Json:
        version = query.get("resourceVersion") or "0"
        if not version.isdecimal():
            raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{version}"')
        storage, kind = self._cluster.storage, target.kind
        if int(version) > storage.version:
            raise from_the_future(int(version), storage.version)
        matches = selector(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        limit = int(query.get("limit") or 0)
        page = storage.page(kind, target.namespace, matches, limit, query.get("continue", ""))
        metadata: Json = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = page.remaining
        items = page.items if kind.custom else [_without_type(item) for item in page.items]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}

    def _delete(self, target: Target, options: Json) -> Answer:
        kind = target.kind
        before = self._cluster.get(kind, target.name, target.namespace)
        after = self._cluster.delete(kind, target.name, target.namespace, options)
        if "deletionTimestamp" in after["metadata"] or kind.resource == "pods":
            return Answer(200, after)
        details = {"name": target.name, "kind": kind.plural, "uid": before["metadata"]["uid"]}
        return Answer(200, _success(details | ({"group": kind.group} if kind.group else {})))

    def _delete_collection(self, target: Target, query: Query, options: Json) -> Answer:
        found = self._list(target, {key: query[key] for key in ("labelSelector", "fieldSelector") if key in query})
        for item in found["items"]:
            self._cluster.delete(target.kind, item["metadata"]["name"], item["metadata"].get("namespace", ""), options)
        return Answer(200, found)

    def _subresource(self, verb: str, target: Target, query: Query, body: bytes, content_type: str) -> Answer:
        match target.kind.plural, target.subresource, verb:
            case "pods", "eviction", "create":
                options = _decode(body).get("deleteOptions") or {}
                options |= {"dryRun": ["All"]} if query.get("dryRun") else {}
                self._cluster.evict(target.name, target.namespace, options)
                return Answer(201, _success())
            case "pods", "log", "get":
                self._cluster.get(target.kind, target.name, target.namespace)
                written = self._cluster.logs.get((target.namespace, target.name, query.get("container", "")), "")
                lines = written.splitlines(keepends=True)[-int(query.get("tailLines", len(written) + 1)) :]
                return Answer(200, "".join(lines)[: int(query.get("limitBytes", len(written)))])
            case "pods", "binding", "create":
                self._cluster.bind(target.name, target.namespace, _decode(body)["target"]["name"])
                return Answer(201, _success())
            case _, "scale", _ if target.kind.has_scale:
                return Answer(200, self._scale(verb, target, query, body, content_type))
        raise unknown_resource()

    def _scale(self, verb: str, target: Target, query: Query, body: bytes, content_type: str) -> Json:
        kind, name, namespace = target.kind, target.name, target.namespace
        obj = self._cluster.get(kind, name, namespace)
        if verb != "get":
            if PATCHES.get(content_type, "merge") != "merge":
                raise Refusal(415, "the fake scales by update and merge patch alone")
            wanted = {"spec": {"replicas": _decode(body)["spec"]["replicas"]}}
            writer = Writer(query.get("fieldManager", ""), bool(query.get("dryRun")))
            obj = self._cluster.patch(kind, name, namespace, wanted, "merge", writer)
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        status: Json = {"replicas": obj.get("status", {}).get("replicas", 0)}
        if text := _selector_text(obj):
            status["selector"] = text
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: obj["metadata"][key] for key in kept},
            "spec": {"replicas": obj.get("spec", {}).get("replicas", 0)},
            "status": status,
        }


def _selector_text(obj: Json) -> str:
    if text := obj.get("status", {}).get("selector"):
        return str(text)
    labels = (obj.get("spec", {}).get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _patch_kind(content_type: str) -> str:
    if content_type not in PATCHES:
        raise Refusal(415, "415: Unsupported Media Type", details={})
    return PATCHES[content_type]


def _delete_options(query: Query, body: bytes) -> Json:
    options = _decode(body) if body else {}
    if grace := query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = int(grace)
    if propagation := query.get("propagationPolicy"):
        options["propagationPolicy"] = propagation
    return options | ({"dryRun": ["All"]} if query.get("dryRun") else {})


def _success(details: Json | None = None) -> Json:
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | ({"details": details} if details else {"code": 201})


def _decode_any(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type Object): {error}") from error


def _decode(body: bytes) -> Json:
    decoded = _decode_any(body)
    if not isinstance(decoded, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object)")
    return decoded


def _without_type(item: Json) -> Json:
    """Items in a list of a built-in kind carry no type of their own, on the real server too."""
    return {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
