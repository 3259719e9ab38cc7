"""Rules about the shape of single values: names, hosts, ports, lines of a configuration file."""

import re
from typing import Final

from slurm_operator.api.rules import Rule


def fits(pattern: str, message: str, hint: str) -> Rule:
    """A text must match as a whole. Patterns keep to what RE2 and Python read alike: no quotes, no `\\s`."""
    compiled = re.compile(pattern)
    return Rule(
        cel=f"self.matches(r'^(?:{pattern})$')",
        holds=lambda text: compiled.fullmatch(text) is not None,
        message=message,
        hint=hint,
    )


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
"""Names of most Kubernetes objects."""

OBJECT_NAME: Final = fits(
    rf"({SUBDOMAIN})?",
    "not a name that an object can have",
    "use lower-case letters, digits, - and ., as in my-secret",
)
CONFIG_KEY: Final = fits(
    "[-._a-zA-Z0-9]+",
    "not a key that a Secret or ConfigMap can have",
    "use letters, digits, -, _ and ., as in slurm.key",
)
HOST: Final = fits(
    r"[a-zA-Z0-9_]([-a-zA-Z0-9_.]*[a-zA-Z0-9_.])?|\[?[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\]?",
    "neither a host name nor an IP address",
    "write for example slurmctld.example.com, without port, spaces or #",
)
WORD: Final = fits(
    r"[^\x00-\x20\x7f#=\\\x22\x27]*",
    "must be one word",
    "leave out spaces, line breaks, quotes, #, = and backslashes",
)
USER: Final = fits(
    r"[^\x00-\x20\x7f:,#\x22\x27]*",
    "not a user name",
    "leave out spaces, line breaks, quotes, colons, commas and #",
)
ONE_LINE: Final = fits(
    r"[^\x00-\x08\x0a-\x1f\x7f#\\]+",
    "must be one line of options, as in State=UP MaxTime=UNLIMITED",
    "leave out line breaks, # and backslashes",
)
CLUSTER_NAME: Final = fits(
    "([a-zA-Z0-9][-a-zA-Z0-9_.]*)?",
    "not a cluster name",
    "use letters, digits, - and _, as in prod_cluster, without spaces, line breaks or #",
)
NODE_OPTIONS: Final = fits(
    r"[ \t\r\n]*([^\x00-\x20\x7f=#\\\x22\x27]+=[^\x00-\x20\x7f#\\\x22\x27]*([ \t\r\n]+|$))*",
    "must be Key=Value pairs separated by spaces",
    "write for example RealMemory=64000 Gres=gpu:8, without quotes, # or backslashes",
)
RESERVATION_FLAG: Final = fits(
    "[a-zA-Z][a-zA-Z0-9_]*([=:+][-a-zA-Z0-9_:+]*)?",
    "not a reservation flag",
    "write for example DAILY or PURGE_COMP=00:05:00, one flag per item",
)
PERCENTAGE: Final = "0*[1-9][0-9]*%"

PORT: Final = Rule(
    cel="self >= 1 && self <= 65535",
    holds=lambda port: 1 <= port <= 65535,
    message="not a port",
    hint="write a number from 1 to 65535",
)
PORT_OR_AUTOMATIC: Final = Rule(
    cel="self >= 0 && self <= 65535",
    holds=lambda port: 0 <= port <= 65535,
    message="not a port",
    hint="write a number from 1 to 65535, or leave it out for the usual one",
)
NOT_NEGATIVE: Final = Rule(
    cel="self >= 0",
    holds=lambda number: number >= 0,
    message="must not be negative",
    hint="write 0 or more",
)
