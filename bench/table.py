"""Rows of figures, and how they are printed and judged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool = False
    """A tenth of the work: to see that it runs, not to judge."""

    def count(self, number: int) -> int:
        return max(1, number // 10) if self.quick else number


@dataclass(frozen=True, slots=True)
class Limit:
    """What is promised: on the figure itself or on its ratio to the reference."""

    of: Literal["figure", "ratio"]
    sense: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{'ratio ' if self.of == 'ratio' else ''}{self.sense} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    figure: float
    unit: str
    reference: float | None = None
    beside: str = ""
    """What the reference is."""
    limit: Limit | None = None

    @property
    def ratio(self) -> float | None:
        return self.figure / self.reference if self.reference else None

    @property
    def kept(self) -> bool | None:
        """Whether the promise is kept; None if there is none."""
        if self.limit is None:
            return None
        judged = self.figure if self.limit.of == "figure" else self.ratio
        if judged is None:
            return False
        return judged <= self.limit.value if self.limit.sense == "<=" else judged >= self.limit.value

    def cells(self) -> tuple[str, ...]:
        verdict = {None: "", True: "pass", False: "FAIL"}[self.kept]
        return (
            self.what,
            _number(self.figure),
            self.unit,
            _number(self.reference),
            self.beside,
            _number(self.ratio),
            str(self.limit or ""),
            verdict,
        )


HEADER = ("figure", "ours", "unit", "reference", "which is", "ratio", "limit", "")
_RIGHT = (1, 3, 5)


def render(rows: Iterable[Row]) -> str:
    table: Sequence[tuple[str, ...]] = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in _RIGHT else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
