"""Reads and writes the `Key=Value` files of Slurm exactly as Slurm's own parser does.

Verified against Slurm 26.05: a comment starts at an unescaped `#`, even inside quotes; an odd number of backslashes at
the end of a line joins it with the next; a backslash then disappears and keeps the character after it; a value is
either double-quoted or has no white space; and there is no way to write a value holding both `"` and white space.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

MAX_INCLUDE_DEPTH = 16

_BLANK = " \t\n\r\f\v"  # white space as C knows it, not as Unicode does

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|(\S+))(?=\s|$)', re.ASCII)
_INCLUDE = re.compile(r"include\s+(\S+)\s*(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
_CONTINUATION = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$", re.ASCII)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_COMMENT = re.compile(r"((?:[^\\#]|\\.)*)#", re.DOTALL)
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_WHITE_SPACE = re.compile(r"\s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pair:
    """One `key=value`; the operator of `key+=value` is kept beside it."""

    key: str
    value: str
    operator: str = ""

    def __str__(self) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_.]+", self.key):
            raise ValueError(f"{self.key!r} is not a name that Slurm can read")
        return f"{self.key}{self.operator}={quote(self.value, self.key)}"


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line. Where it stands is no part of what it says, so it is left out of comparisons."""

    pairs: tuple[Pair, ...]
    rest: str = ""  # what Slurm could not read
    include: str = ""  # an include that nobody could resolve
    file: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return self.pairs[0].key.lower() if self.pairs else ""

    @property
    def value(self) -> str:
        return self.pairs[0].value if self.pairs else ""

    def get(self, key: str) -> str | None:
        """The value of a later `key=value` on this line; the last one counts, as in Slurm."""
        found = [pair.value for pair in self.pairs if pair.key.lower() == key.lower()]
        return found[-1] if found else None

    def __str__(self) -> str:
        return " ".join(map(str, self.pairs))


@dataclass(frozen=True, slots=True)
class Conf:
    lines: tuple[Line, ...]

    def all(self, key: str) -> tuple[Line, ...]:
        """Every line that starts with this key."""
        return tuple(line for line in self.lines if line.key == key.lower())

    def get(self, key: str) -> str | None:
        """The value of a key that Slurm knows once: the last one wins."""
        lines = self.all(key)
        return lines[-1].value if lines else None


Resolver = Callable[[str], str | None]


def parse(text: str, file: str = "slurm.conf", resolve: Resolver | None = None) -> Conf:
    """The file as Slurm sees it; `resolve` gives the text of an included file, or None."""
    return Conf(tuple(_lines(text, file, resolve, MAX_INCLUDE_DEPTH)))


def render(lines: Iterable[Line]) -> str:
    return "".join(f"{line}\n" for line in lines)


def quote(value: str, name: str) -> str:
    """The value as Slurm reads it back, or a ValueError that names the field."""
    if _FORBIDDEN.search(value):
        raise ValueError(f"{name} holds a line break or a control character, which no Slurm configuration can")
    spaced = not value or bool(_WHITE_SPACE.search(value))
    # A quote at the beginning opens a quoted value, which may end anywhere later on the line.
    if value.startswith('"') or (spaced and '"' in value):
        raise ValueError(f'{name} holds a double quote (") where Slurm cannot represent one; choose a value without it')
    escaped = value.replace("\\", "\\\\").replace("#", "\\#")
    return f'"{escaped}"' if spaced else escaped


def one_line(text: str, name: str) -> str:
    """Free text that goes into a line of ours: it must neither end that line nor swallow the next one."""
    if _FORBIDDEN.search(text) or _CONTINUATION.search(text):
        raise ValueError(f"{name} must stay on one line: no line break, control character or backslash at its end")
    return text.strip(_BLANK)


def host_items(text: str) -> list[str]:
    """The comma-separated parts of a host list; a comma inside brackets does not separate."""
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


def _lines(text: str, file: str, resolve: Resolver | None, depth: int) -> Iterator[Line]:
    for number, logical in _logical_lines(text):
        include = _INCLUDE.fullmatch(logical)
        if include is None:
            yield _line(logical, file, number)
            continue
        name, rest = include[1], include[2].strip(_BLANK)
        content = resolve(name) if resolve else None
        if content is None or rest or not depth:
            yield Line((), rest=rest, include=name, file=file, number=number)
        else:
            yield from _lines(content, name, resolve, depth - 1)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Comments cut, continuations joined, escapes undone; blank lines left out."""
    joined, start = "", 0
    physical = text.split("\n")
    for number, raw in enumerate(physical, 1):
        start = start or number
        if "\\" not in raw:
            joined += raw.partition("#")[0]
        else:
            comment = _COMMENT.match(raw)
            body = comment[1] if comment else raw
            continued = _CONTINUATION.search(body)
            joined += body[: continued.start()] + continued[1] if continued else body
            if continued and number < len(physical):
                continue
        logical = _ESCAPE.sub(r"\1", joined) if "\\" in joined else joined
        if logical.strip(_BLANK):
            yield start, logical
        joined, start = "", 0


def _line(logical: str, file: str, number: int) -> Line:
    pairs, position = [], 0
    while match := _PAIR.match(logical, position):
        pairs.append(Pair(match[1], match[4] if match[3] is None else match[3], match[2]))
        position = match.end()
    return Line(tuple(pairs), rest=logical[position:].strip(_BLANK), file=file, number=number)
