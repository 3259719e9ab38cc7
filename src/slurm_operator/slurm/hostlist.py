"""Slurm's hostlist expressions: `gpu-[000-127,200],login[1-2]-[a]` and back.

One bulk request names thousands of nodes in a few bytes this way.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product

MOST_NAMES = 100_000
"""More than any cluster has; a mistyped range must not eat the memory."""

_SYNTAX = re.compile(r"[\[\],\s]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_TRAILING_NUMBER = re.compile(r"(.*?)(\d{1,18})", re.DOTALL)
_NUMBER = re.compile(r"(\d+)")


class HostlistError(ValueError):
    """A hostlist that Slurm's grammar does not allow."""


def expand(hostlist: str) -> list[str]:
    """Every name that a hostlist stands for, in its order."""
    if hostlist in ("", "(null)"):
        return []
    if not _SYNTAX.search(hostlist):
        return [hostlist]
    names: list[str] = []
    for element in _elements(hostlist):
        for name in _names_of(element):
            names.append(name)
            if len(names) > MOST_NAMES:
                raise HostlistError(f"hostlist {hostlist[:80]!r} stands for more than {MOST_NAMES} names")
    return names


@lru_cache(maxsize=32)
def members(hostlist: str) -> frozenset[str]:
    """Return the names that a hostlist of the operator's own stands for; none if it cannot be read."""
    try:
        return frozenset(expand(hostlist))
    except HostlistError:
        return frozenset()


def compress(names: Iterable[str]) -> str:
    """The shortest hostlist of runs for a set of names; order and repetition are lost."""
    numbered: dict[str, list[str]] = {}
    plain: list[str] = []
    for name in set(names):
        _refuse_syntax(name)
        if match := _TRAILING_NUMBER.fullmatch(name):
            numbered.setdefault(match[1], []).append(match[2])
        else:
            plain.append(name)
    elements = plain + [_bracket(prefix, digits) for prefix, digits in numbered.items()]
    return ",".join(sorted(elements, key=natural_key))


def natural_key(name: str) -> tuple[object, ...]:
    """Sorts `w-2` before `w-10`: runs of digits compare as numbers."""
    parts = _NUMBER.split(name)
    return tuple((int(part), len(part)) if at % 2 else part for at, part in enumerate(parts))


def natural_sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=natural_key)


def _refuse_syntax(name: str) -> None:
    if not name or _SYNTAX.search(name):
        raise HostlistError(f"{name!r} cannot be a node name")


def _elements(hostlist: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    start = depth = 0
    for at, char in enumerate(hostlist):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield hostlist[start:at]
            start = at + 1
        if depth not in (0, 1):
            raise HostlistError(f"hostlist {hostlist[:80]!r} has a bracket too many")
    if depth:
        raise HostlistError(f"hostlist {hostlist[:80]!r} lacks a closing bracket")
    yield hostlist[start:]


def _names_of(element: str) -> Iterator[str]:
    element = element.strip()
    if not element:
        raise HostlistError("a hostlist has an empty element")
    pieces = re.split(r"[\[\]]", element)
    choices: list[Iterable[str]] = [
        list(_numbers(piece)) if at % 2 else (piece,) for at, piece in enumerate(pieces) if piece or at % 2
    ]
    for parts in product(*choices):
        yield "".join(parts)


def _numbers(ranges: str) -> Iterator[str]:
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if not match:
            raise HostlistError(f"{text!r} is not a number or a range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise HostlistError(f"the range {text!r} runs backwards")
        if int(last) - int(first) >= MOST_NAMES:
            raise HostlistError(f"the range {text!r} stands for more than {MOST_NAMES} names")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _bracket(prefix: str, digits: list[str]) -> str:
    if len(digits) == 1:
        return prefix + digits[0]
    runs: list[tuple[str, str]] = []
    for text in sorted(digits, key=lambda text: (len(text), int(text))):
        if runs and text == str(int(runs[-1][1]) + 1).zfill(len(runs[-1][0])):
            runs[-1] = (runs[-1][0], text)
        else:
            runs.append((text, text))
    return f"{prefix}[{','.join(first if first == last else f'{first}-{last}' for first, last in runs)}]"
