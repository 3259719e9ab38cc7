"""Log lines as a log pipeline reads them."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_operator.errors import UserError
from slurm_operator.runtime.logs import configure_logging, log_fields

log = logging.getLogger("slurm_operator.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logging("info", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_line_of_json(stream: io.StringIO) -> None:
    log.info("created %d pods\nin one go", 3, extra={"object": ("ns", "a"), "seconds": 0.5})
    (line,) = lines(stream)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "slurm_operator.test",
        "msg": "created 3 pods\nin one go",
        "object": ["ns", "a"],
        "seconds": 0.5,
    }


def test_every_line_carries_the_key_that_is_worked_on(stream: io.StringIO) -> None:
    with log_fields(controller="nodeset", namespace="ns", name="gpu"):
        log.warning("inside")
        with log_fields(step="drain"):
            log.warning("deeper")
    log.warning("outside")
    inside, deeper, outside = lines(stream)
    assert (inside["controller"], inside["namespace"], inside["name"]) == ("nodeset", "ns", "gpu")
    assert (deeper["name"], deeper["step"]) == ("gpu", "drain")
    assert "controller" not in outside


def test_an_exception_comes_with_its_trace(stream: io.StringIO) -> None:
    try:
        raise ValueError("no such node")
    except ValueError:
        log.exception("reconcile failed")
    (line,) = lines(stream)
    assert line["error"] == "no such node"
    assert "Traceback" in line["stacktrace"]


def test_what_json_cannot_hold_is_written_as_text(stream: io.StringIO) -> None:
    log.info("odd", extra={"value": {1, 2}, "thing": object})
    (line,) = lines(stream)
    assert sorted(line["value"]) == [1, 2]
    assert line["thing"] == "<class 'object'>"


def test_the_level_is_respected_and_must_exist(stream: io.StringIO) -> None:
    log.debug("too much")
    assert lines(stream) == []
    with pytest.raises(UserError, match="unknown log level 'loud'"):
        configure_logging("loud", stream)
