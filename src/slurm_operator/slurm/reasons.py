"""Texts that we write into Slurm's reason field, and how to tell ours from everybody else's."""

import re

from slurm_operator.api.names import REASON_PREFIX

LONGEST_REASON = 256
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BREAKS = re.compile(r"[\t\r\n]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_ours(reason: str) -> bool:
    return reason.startswith(REASON_PREFIX)


def our_reason(text: str) -> str:
    """A reason that we recognise later; whatever a person or a program wrote stays one harmless line."""
    if is_ours(text):
        text = text.removeprefix(REASON_PREFIX)
    return REASON_PREFIX + (sanitised(text) or "unknown")


def sanitised(text: str) -> str:
    one_line = _CONTROL.sub("", _BREAKS.sub(" ", _ANSI.sub("", text)))
    return one_line.strip()[:LONGEST_REASON].rstrip()
