"""Faults to inject: which requests they strike, and what happens to those."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error and do nothing."""

    code: int
    reason: str = ""
    message: str = "injected"
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection without an answer; with `after_effect` the write has happened all the same."""

    after_effect: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Keep the connection and never answer."""


@dataclass(frozen=True, slots=True)
class CutStream:
    """A watch: end the connection, abruptly, after so many events."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class SilenceStream:
    """A watch: after so many events not a byte more, as when a firewall forgets the connection."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class FailStream:
    """A watch: after so many events one of type ERROR, then the end."""

    code: int = 410
    after: int = 0


Action = Refuse | Disconnect | Delay | Hang | CutStream | SilenceStream | FailStream


@dataclass
class Fault:
    """Strikes requests by verb, resource and name (with wildcards), so many times, after letting some pass."""

    action: Action
    verb: str = "*"
    resource: str = "*"
    name: str = "*"
    times: int | None = 1
    skip: int = 0
    chance: float = 1.0

    def matches(self, verb: str, resource: str, name: str) -> bool:
        return (
            any(fnmatchcase(verb, pattern) for pattern in self.verb.split("|"))
            and fnmatchcase(resource, self.resource)
            and fnmatchcase(name, self.name)
        )

    def strikes(self, dice: random.Random) -> bool:
        if self.times == 0 or dice.random() >= self.chance:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass
class Faults:
    """The faults still to come; drawn from a seed, so a failing run can be repeated."""

    dice: random.Random
    planned: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> Fault:
        self.planned.append(fault)
        return fault

    def clear(self) -> None:
        self.planned.clear()

    def strike(self, verb: str, resource: str, name: str) -> Action | None:
        for fault in self.planned:
            if fault.matches(verb, resource, name) and fault.strikes(self.dice):
                return fault.action
        return None
