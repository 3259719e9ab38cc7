"""Decodes a long JSON list while its bytes arrive, so that tens of megabytes never block the loop nor fill the memory.

The list is cut where the server's own layout shows the end of an item. A wrong guess cannot go wrong: JSON values
are self-delimiting, so what decodes as a list of whole items from the first one on *is* the first items; what does
not decode is kept and tried again with more bytes, in the end as the whole document.
"""

import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from slurm_operator.slurm.decode import UNREADABLE, decode_replacing

Item = TypeVar("Item")
Document = TypeVar("Document")

_CUT_FROM = 1 << 16
_LONGEST_HEAD = 1 << 16
_OPEN, _CLOSE = ord("["), ord("]")


class ListStream(Generic[Item, Document]):
    """Hands the items of one top-level list to `sink` in pieces; the document without them is left for `finish`."""

    def __init__(
        self,
        field: str,
        items: msgspec.json.Decoder[tuple[Item, ...]],
        document: msgspec.json.Decoder[Document],
        sink: Callable[[Sequence[Item]], None],
    ) -> None:
        self._start = re.compile(rb'"%s"\s*:\s*\[(\s*)\{' % re.escape(field.encode()))
        self._items = items
        self._document = document
        self._sink = sink
        self._head = b""
        self._separator = b""
        self._buffer = bytearray()
        self._cut_from = _CUT_FROM

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk
        if len(self._buffer) < self._cut_from:
            return
        if not self._head and not self._find_list():
            self._cut_from *= 2
            return
        self._cut()

    def finish(self) -> Document:
        """The rest of the document: its last items are in the list's own place."""
        if not self._head:
            return decode_replacing(self._document.decode, self._buffer)
        return decode_replacing(self._document.decode, self._head + self._buffer[1:])

    def _find_list(self) -> bool:
        match = self._start.search(self._buffer, 0, _LONGEST_HEAD)
        if not match:
            return False
        head = bytes(self._buffer[: match.start(1)])
        try:
            decode_replacing(msgspec.json.decode, head + b"]}")
        except UNREADABLE:
            return False
        gap = match[1]
        self._head, self._separator = head, gap + b"}," + gap + b"{"
        del self._buffer[: len(head) - 1]
        return True

    def _cut(self) -> None:
        """The buffer starts with `[`, or with the comma that ended the last piece, turned into one."""
        at = self._buffer.rfind(self._separator)
        if at < 0:
            self._cut_from = len(self._buffer) * 2
            return
        comma = at + self._separator.index(b",")
        piece = self._buffer[: comma + 1]
        piece[comma] = _CLOSE
        try:
            items = decode_replacing(self._items.decode, piece)
        except UNREADABLE:
            self._cut_from = len(self._buffer) * 2
            return
        del self._buffer[:comma]
        self._buffer[0] = _OPEN
        self._cut_from = _CUT_FROM
        self._sink(items)
