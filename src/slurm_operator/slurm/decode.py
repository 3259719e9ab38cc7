"""Decodes JSON that may hold bytes that are not UTF-8.

Slurm keeps names, reasons and comments as the bytes that a user wrote, and slurmrestd sends them as they are. One such
byte must not make a whole answer unreadable: it becomes U+FFFD. A structure in JSON consists of ASCII alone, which the
replacement never touches.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

REPLACEMENT = "\ufffd"
UNREADABLE = (ValueError, RecursionError)
"""What decoding raises for a body that is not what was asked for; all errors of msgspec are ValueErrors."""


def decode_replacing(decode: Callable[[bytes | bytearray], T], body: bytes | bytearray) -> T:
    """Decode a body; only if it turns out not to be UTF-8, decode a mended copy of it."""
    try:
        return decode(body)
    except UnicodeDecodeError:
        return decode(body.decode(errors="replace").encode())
