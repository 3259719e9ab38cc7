"""Watch streams: lines to events, each decoded in one pass straight into its projection."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeAlias, Union

import msgspec

from slurm_operator.kube.errors import Status
from slurm_operator.kube.model import Model, ObjectMeta
from slurm_operator.kube.resource import T

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Added(msgspec.Struct, Generic[T], frozen=True, tag_field="type", tag="ADDED"):
    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True, tag_field="type", tag="MODIFIED"):
    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, tag_field="type", tag="DELETED"):
    object: T


class _BookmarkMeta(Model):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(Model):
    metadata: _BookmarkMeta


class Bookmark(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    """Nothing of ours happened up to this version."""

    object: _BookmarkObject

    @property
    def resource_version(self) -> str:
        return self.object.metadata.resource_version

    @property
    def ends_initial_events(self) -> bool:
        return (self.object.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"


class Failed(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    object: Status


class _Identity(Model):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Unreadable(msgspec.Struct, frozen=True):
    """An object that exists but does not fit its projection. The others must not suffer from it."""

    metadata: ObjectMeta
    error: str
    type: str = ""


WatchEvent: TypeAlias = Added[T] | Modified[T] | Deleted[T] | Bookmark | Failed | Unreadable


class _Described(Model):
    metadata: ObjectMeta


class _Named(Model):
    metadata: _Identity


class _AnyEvent(Model):
    type: str
    object: msgspec.Raw


@functools.cache
def _decoder(shape: Any) -> Callable[[bytes], Any]:
    """Making a decoder costs more than a hundred decodings, and there are few shapes."""
    return msgspec.json.Decoder(shape).decode


def decode_object(type_: type[T], body: bytes) -> T:
    obj: T = _decoder(type_)(body)
    return obj


def event_decoder(type_: type[T]) -> Callable[[bytes], WatchEvent[T]]:
    shapes: list[Any] = [generic[type_] for generic in (Added, Modified, Deleted)]
    decode = _decoder(Union[(*shapes, Bookmark, Failed)])

    def decode_or_name(line: bytes) -> WatchEvent[T]:
        try:
            event: WatchEvent[T] = decode(line)
        except msgspec.ValidationError as error:
            raw = msgspec.json.decode(line, type=_AnyEvent)
            return Unreadable(_metadata(raw.object), str(error), raw.type)
        return event

    return decode_or_name


def _metadata(raw: msgspec.Raw) -> ObjectMeta:
    """Return the metadata of an object that does not fit, or its identity alone if the metadata do not fit either."""
    try:
        return msgspec.json.decode(raw, type=_Described).metadata
    except msgspec.ValidationError:
        named = msgspec.json.decode(raw, type=_Named).metadata
        return ObjectMeta(**msgspec.structs.asdict(named))


class _ListMeta(Model):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _RawPage(Model):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Listing(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    resource_version: str
    unreadable: list[Unreadable] = []
    continue_: str = ""


class _Page(Model, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


def decode_page(type_: type[T], body: bytes) -> Listing[T]:
    shape: Any = _Page[type_]  # type: ignore[valid-type]  # a run-time type
    try:
        page: _Page[T] = _decoder(shape)(body)
    except msgspec.ValidationError:
        return _sift(type_, body)
    return Listing(page.items or [], page.metadata.resource_version, [], page.metadata.continue_)


def _sift(type_: type[T], body: bytes) -> Listing[T]:
    """Item by item, because one of the page does not fit."""
    page = msgspec.json.decode(body, type=_RawPage)
    listing: Listing[T] = Listing([], page.metadata.resource_version, [], page.metadata.continue_)
    for item in page.items or ():
        try:
            listing.items.append(decode_object(type_, bytes(item)))
        except msgspec.ValidationError as error:
            listing.unreadable.append(Unreadable(_metadata(item), str(error)))
    return listing


class LineSplitter:
    """Chunks in, whole lines out, however long a line is; copies each byte once."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        head, *rest = chunk.split(b"\n")
        self._open.append(head)
        for part in rest:
            line = b"".join(self._open)
            self._open = [part] if part else []
            if line:
                yield line


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    splitter = LineSplitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line
