"""What travels in the bodies of requests and answers: plain values out, projections in."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from slurm_operator.kube.errors import ApiError, Call, ServerError
from slurm_operator.kube.resource import Manifest

R = TypeVar("R")


class _Kind(msgspec.Struct):
    kind: str
    name: str
    namespaced: bool


class _Kinds(msgspec.Struct):
    resources: tuple[_Kind, ...] | None
    """None in a group that has no kinds."""


decode_kinds = msgspec.json.Decoder(_Kinds).decode

_ESCAPES = tuple((character, f"\\u{ord(character):04x}") for character in "&<>\u2028\u2029")


def encode(body: Any) -> bytes:
    """The standard encoder knows plain values only, so a projection in a manifest is a TypeError, never a write.

    Characters are escaped as the API server escapes them, because it keeps some values as they were sent, such as the
    data of a ControllerRevision, and takes a patch of another field for a change of these if it writes them otherwise.
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return text.encode()


def plain(call: Call, body: bytes) -> Manifest:
    return understand(call, partial(msgspec.json.decode, type=Manifest), body)


def understand(call: Call, decode: Callable[[bytes], R], body: bytes) -> R:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise unintelligible(call, error) from error


def unintelligible(call: Call, error: msgspec.DecodeError) -> ApiError:
    return ServerError(call, f"the answer is not what Kubernetes would say: {error}")
