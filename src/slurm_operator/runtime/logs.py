"""JSON logs: one object per line, with the key of whatever is being reconciled on every line written meanwhile."""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from slurm_operator.errors import UserError

_fields: ContextVar[dict[str, str]] = ContextVar("log fields", default={})  # noqa: B039 - never mutated, only replaced

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; the rest was handed in as `extra`."""


@contextmanager
def log_fields(**fields: str) -> Iterator[None]:
    """Adds fields to each line logged inside, also from functions and tasks that know nothing of them."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


class JsonFormatter(logging.Formatter):
    """The keys are those of controller-runtime's production logger, so that existing log pipelines fit."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_fields.get(),
            **{name: value for name, value in record.__dict__.items() if name not in _STANDARD},
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = str(record.exc_info[1])
            line["stacktrace"] = "".join(traceback.format_exception(record.exc_info[1]))
        return self._encode(line).decode()


def configure_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Sends every record of the process to one stream as JSON."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise UserError(f"unknown log level {level!r}", hint="use debug, info, warning or error")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    # One line for each request to a probe is a line per tick, not per decision.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
