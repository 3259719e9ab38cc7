"""The small value syntaxes of Kubernetes: durations, quantities, int-or-percent."""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from slurm_operator.api.names import ANNOTATION_REPORT_WAITING

DURATION_PATTERN: Final = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
"""Go's duration syntax, as `lifetime` and `duration` use it."""
_DURATION_PART: Final = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""Kubernetes' quantity syntax, such as `500m` or `4Gi`."""
_QUANTITY: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:([eE][+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?")
_FACTOR: Final = {
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
}

LONGEST: Final = 64
"""Longer values are nonsense, and their arithmetic could take for ever."""

IntOrString = int | str
"""A count, or text such as `25%`."""


@lru_cache(maxsize=256)
def parse_duration(text: str) -> float:
    """Seconds in a duration such as `1h15m`; ValueError if it is none."""
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0.0
    parts = list(_DURATION_PART.finditer(body)) if len(body) <= LONGEST else []
    if not parts or "".join(part[0] for part in parts) != body or any(part[1] in ("", ".") for part in parts):
        raise ValueError(f"{text!r} is not a duration; write for example 30m or 1h15m")
    return float(sign * sum(Decimal(part[1]) * _SECONDS[part[2]] for part in parts))


def report_waiting(annotations: Mapping[str, str]) -> float | None:
    """Return the seconds of the annotation `report-waiting-after`; None if it is absent or no usable duration."""
    try:
        seconds = parse_duration(annotations[ANNOTATION_REPORT_WAITING])
    except (KeyError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def duration_or(text: str, otherwise: str) -> float:
    """Seconds in a duration; of the other one if an old object holds what is none."""
    try:
        return parse_duration(text)
    except ValueError:
        return parse_duration(otherwise)


def parse_quantity(value: str | int | float) -> Decimal:
    """The number that a quantity such as `500m` or `4Gi` stands for; ValueError if it is none."""
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or match[1] in ("", "+", "-", ".", "+.", "-."):
        raise ValueError(f"{text!r} is not a quantity; write for example 500m, 2 or 4Gi")
    number = Decimal(match[1] + (match[2] or ""))
    return number * _FACTOR.get(match[3] or "", Decimal(1))


def resolve_count(value: IntOrString, total: int) -> int:
    """A count as it is; a percentage of `total`, rounded up; ValueError for other text."""
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isascii() or not value[:-1].isdigit():
        raise ValueError(f"{value!r} is neither a number nor a percentage; write for example 1 or 25%")
    return -(-int(value[:-1]) * total // 100)
