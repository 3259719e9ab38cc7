"""Texts that we write into Slurm's reason field, and how to tell ours from everybody else's.

U+FFFD stands for bytes that are not UTF-8 (see `decode`): a reason with it is another text in Slurm than the one that
was read. We never write it, so such a reason is not ours.
"""

import re

from slurm_operator.api.names import REASON_PREFIX
from slurm_operator.slurm.decode import REPLACEMENT

LONGEST_REASON = 256
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BREAKS = re.compile(r"[\t\r\n]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_ours(reason: str) -> bool:
    return reason.startswith(REASON_PREFIX) and REPLACEMENT not in reason


def our_reason(text: str) -> str:
    """A reason that we recognise later; whatever a person or a program wrote stays one harmless line."""
    return REASON_PREFIX + (sanitised(text.removeprefix(REASON_PREFIX)) or "unknown")


def sanitised(text: str) -> str:
    """One line without control characters and without the mark of bytes that could not be read."""
    one_line = _CONTROL.sub("", _BREAKS.sub(" ", _ANSI.sub("", text.replace(REPLACEMENT, "?"))))
    return one_line.strip()[:LONGEST_REASON].rstrip()
