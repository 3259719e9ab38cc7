"""JSON merge patch (RFC 7386), JSON patch (RFC 6902), and strategic merge on keyed lists."""

from __future__ import annotations

import copy
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.schema import Names, item_key, list_shape
from tests.fakes.apiserver.status import Refusal, bad_request

Json = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(kind: Kind, target: Any, patch: Any, names: Names = ()) -> Any:
    """As a merge patch, but keyed lists merge by key and `$patch: delete` takes an item away."""
    if isinstance(patch, list) and isinstance(target, list):
        keys = list_shape(kind, names)
        if keys == "set":
            return target + [item for item in patch if item not in target]
        if isinstance(keys, tuple):
            merged = {item_key(item, keys): item for item in target}
            for item in patch:
                key = item_key(item, keys)
                if item.get("$patch") == "delete":
                    merged.pop(key, None)
                else:
                    merged[key] = strategic_patch(kind, merged.get(key, {}), item, names)
            return list(merged.values())
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = strategic_patch(kind, result.get(key), value, (*names, key))
    return result


def json_patch(target: Json, operations: Any) -> Json:
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into a list of operations")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            message = "the server rejected our request due to an error in our request"
            raise Refusal(422, message, details={}) from error
    return dict(document)


def _operate(document: Any, operation: Json) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            _add(document, path, copy.deepcopy(operation["value"]))
        case "replace":
            _replace(document, path, copy.deepcopy(operation["value"]))
        case "remove":
            _take(document, path)
        case "test":
            if _at(document, path) != operation.get("value"):
                raise ValueError("test failed")
        case "move":
            _add(document, path, _take(document, _pointer(operation["from"])))
        case "copy":
            _add(document, path, copy.deepcopy(_at(document, _pointer(operation["from"]))))
        case other:
            raise ValueError(other)
    return document


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _add(document: Any, path: list[str], value: Any) -> None:
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        parent[last] = value


def _replace(document: Any, path: list[str], value: Any) -> None:
    """In a map also what is not there, as the server's library does."""
    parent, last = _at(document, path[:-1]), path[-1]
    parent[int(last) if isinstance(parent, list) else last] = value


def _take(document: Any, path: list[str]) -> Any:
    parent, last = _at(document, path[:-1]), path[-1]
    return parent.pop(int(last) if isinstance(parent, list) else last)
