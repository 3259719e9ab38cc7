"""Checks of a rendered configuration before it is applied: an error here kills slurmctld or drains every worker.

A reconfigure answers "ok" and then slurmctld exits, and exits again at every start; so what can be known beforehand is
told beforehand. Every rule was seen on Slurm 26.05. What only a real boot can tell is left to a `Canary`.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from slurm_operator.slurm.conf import known
from slurm_operator.slurm.conf.parser import Conf, Line, host_items, parse
from slurm_operator.slurm.conf.topology import read_topologies

CONFIG_MAP_LIMIT = 1024 * 1024

_RECORDS: dict[str, frozenset[str]] = {
    "nodeset": known.NODE_SET,
    "partitionname": known.PARTITION,
    "nodename": known.NODE,
    "downnodes": known.DOWN_NODES,
}
_FREE_RECORDS = frozenset({"poweraction"})
_MERGED = frozenset({"slurmctldparameters", "authinfo", "authaltparameters"})
_OURS = frozenset({"clustername", "slurmuser", "slurmctldport", "slurmdport", "statesavelocation"})
_BOOLEANS = frozenset({"yes", "up", "true", "1", "no", "down", "false", "0"})
_UNLIMITED = frozenset({"unlimited", "infinite"})


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    file: str
    line: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.told_at(f"{self.file}:{self.line}" if self.line else self.file)

    def told_at(self, place: str) -> str:
        """Say it with another name of the place."""
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the live cluster would make of the configuration."""

    workers: int = 0
    nodes: frozenset[str] = frozenset()  # names that slurmctld knows
    topologies: frozenset[str] = frozenset()  # `topology:unit` that nodes carry


class Canary(Protocol):
    """Boots a throw-away slurmctld on the candidate and tells why it died, or nothing."""

    async def boot(self, files: Mapping[str, str]) -> list[Finding]: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    files: Mapping[str, str]
    facts: Facts
    conf: Conf


def lint(files: Mapping[str, str], facts: Facts | None = None) -> list[Finding]:
    """Findings for the files of the configuration directory, errors first."""
    conf = parse(files.get("slurm.conf", ""), "slurm.conf", files.get)
    candidate = Candidate(files, facts or Facts(), conf)
    findings = [finding for rule in _RULES for finding in rule(candidate)]
    return sorted(findings, key=lambda finding: (finding.level != Level.ERROR, finding.file, finding.line))


def errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == Level.ERROR]


def _error(line: Line, message: str, hint: str = "") -> Finding:
    return Finding(Level.ERROR, line.file, line.number, message, hint)


def _warning(line: Line, message: str, hint: str = "") -> Finding:
    return Finding(Level.WARNING, line.file, line.number, message, hint)


def _readable(candidate: Candidate) -> Iterator[Finding]:
    for line in candidate.conf.lines:
        yield from _readable_line(line, known.SLURM_CONF)
    cgroup = parse(candidate.files.get("cgroup.conf", ""), "cgroup.conf", candidate.files.get)
    for line in cgroup.lines:
        yield from _readable_line(line, known.CGROUP_CONF)


def lint_lines(text: str) -> list[Finding]:
    """Findings for lines that are to be added to a slurm.conf, each judged by itself; includes are not followed."""
    conf = parse(text, "slurm.conf")
    return [finding for line in conf.lines if not line.include for finding in _readable_line(line, known.SLURM_CONF)]


def lint_slurmdbd(text: str) -> list[Finding]:
    """Findings for a slurmdbd.conf."""
    conf = parse(text, "slurmdbd.conf")
    return [finding for line in conf.lines for finding in _readable_line(line, known.SLURMDBD_CONF)]


def _readable_line(line: Line, keys: frozenset[str]) -> Iterator[Finding]:
    if line.include:
        yield _error(line, f"includes {line.include}, which is not there", "add the file through configFileRefs")
    elif not line.pairs:
        yield _error(line, f"cannot read {line.rest!r}", "a line is Key=Value; quote a value that has spaces")
    elif line.key not in keys:
        yield _error(line, f"unknown key {line.pairs[0].key}", _nearest(line.pairs[0].key, keys))
    elif line.key in _RECORDS:
        yield from _readable_record(line, _RECORDS[line.key])
    elif line.key not in _FREE_RECORDS and (line.rest or len(line.pairs) > 1):
        rest = line.rest or line.pairs[1].key
        yield _error(line, f"cannot read what follows {line.pairs[0].key}: {rest!r}", "one Key=Value per line")


def _readable_record(line: Line, keys: frozenset[str]) -> Iterator[Finding]:
    name = f"{line.pairs[0].key}={line.value}"
    for pair in line.pairs[1:]:
        if pair.key.lower() not in keys:
            yield _error(line, f"{name}: unknown option {pair.key}", _nearest(pair.key, keys))
    if line.rest:
        yield _error(line, f"{name}: cannot read {line.rest!r}", "options are Key=Value, separated by spaces")


def _nearest(key: str, keys: frozenset[str]) -> str:
    found = difflib.get_close_matches(key.lower(), keys, n=1)
    return f"did you mean {known.SPELLING[found[0]]}?" if found else "Slurm 26.05 does not know it"


def _values(candidate: Candidate) -> Iterator[Finding]:
    for line in candidate.conf.lines:
        limit = known.LIMITS.get(line.key)
        if limit is not None and not _is_number(line.value, limit):
            yield _error(line, f"{line.pairs[0].key}={line.value} is not a number from 0 to {limit}")
        elif line.key in known.BOOLEAN and line.value.lower() not in _BOOLEANS:
            yield _error(line, f"{line.pairs[0].key}={line.value} is neither YES nor NO")


def _is_number(value: str, limit: int) -> bool:
    if value.lower() in _UNLIMITED:
        return True
    return bool(re.fullmatch(r"[0-9]+|0x[0-9a-fA-F]+", value)) and int(value, 16 if "x" in value else 10) <= limit


def _repeated(candidate: Candidate) -> Iterator[Finding]:
    first: dict[str, Line] = {}
    for line in candidate.conf.lines:
        before = first.setdefault(line.key, line)
        if before is line or not line.key or line.key in known.REPEATABLE | _MERGED:
            continue
        key = line.pairs[0].key
        if line.key in _OURS and line.value != before.value:
            yield _error(line, f"{key}={line.value} contradicts line {before.number}", "the operator sets this key")
        else:
            yield _warning(line, f"{key} is given again (line {before.number}); the last one counts")


def _partitions(candidate: Candidate) -> Iterator[Finding]:
    seen: set[str] = set()
    known_nodes = _known_nodes(candidate)
    for line in candidate.conf.all("PartitionName"):
        if line.value.lower() == "default":
            continue
        if line.value in seen:
            yield _error(line, f"partition {line.value} is defined twice", "slurmctld refuses to start with it")
        seen.add(line.value)
        yield from _partition_nodes(line, known_nodes)


def _known_nodes(candidate: Candidate) -> frozenset[str]:
    named = {line.value for line in candidate.conf.all("NodeSet")}
    declared = {node for line in candidate.conf.all("NodeName") for node in host_items(line.value)}
    return frozenset(named | declared | candidate.facts.nodes)


def _partition_nodes(line: Line, known_nodes: frozenset[str]) -> Iterator[Finding]:
    items = host_items(line.get("Nodes") or "")
    if items == ["ALL"]:
        return
    for item in items:
        if "[" in item and item not in known_nodes:
            yield _warning(line, f"partition {line.value}: slurmctld dies if a node of {item} does not exist")
        elif item not in known_nodes:
            hint = "ALL must stand alone" if item.upper() == "ALL" else "name a NodeSet of this cluster, or ALL"
            yield _error(line, f"partition {line.value}: no node or NodeSet is called {item}", hint)


def _topology(candidate: Candidate) -> Iterator[Finding]:
    if "topology.yaml" not in candidate.files and "topology.conf" in candidate.files:
        return
    try:
        topologies = read_topologies(candidate.files.get("topology.yaml", "[]"))
    except ValueError as problem:
        yield Finding(Level.ERROR, "topology.yaml", 0, str(problem))
        return
    for line in candidate.conf.all("PartitionName"):
        wanted = line.get("Topology")
        if wanted and wanted not in topologies:
            yield _error(line, f"partition {line.value}: topology {wanted} is not in topology.yaml")
    for carried in sorted(candidate.facts.topologies):
        name, _, unit = carried.partition(":")
        if name not in topologies or (unit and not set(unit.split(":")) & topologies[name]):
            hint = "clear the topology of those nodes first; slurmctld could never start again"
            yield Finding(Level.ERROR, "topology.yaml", 0, f"nodes still carry the topology {carried}", hint)


def _sizes(candidate: Candidate) -> Iterator[Finding]:
    size = sum(len(text.encode()) for text in candidate.files.values())
    if size > CONFIG_MAP_LIMIT:
        yield Finding(Level.ERROR, "slurm.conf", 0, f"the files are {size} bytes; a ConfigMap holds {CONFIG_MAP_LIMIT}")
    room = candidate.conf.get("MaxNodeCount")
    if room is not None and room.isdigit() and int(room) < candidate.facts.workers:
        line = candidate.conf.all("MaxNodeCount")[-1]
        yield _error(line, f"MaxNodeCount={room} is less than the {candidate.facts.workers} workers")


def _plugins(candidate: Candidate) -> Iterator[Finding]:
    """Combinations that slurmctld calls fatal."""
    conf = candidate.conf
    for key, script in (("JobSubmitPlugins", "job_submit.lua"), ("CliFilterPlugins", "cli_filter.lua")):
        if (
            _options(conf, key) & {"lua", key.lower().removesuffix("plugins") + "/lua"}
            and script not in candidate.files
        ):
            yield _error(conf.all(key)[-1], f"{key}=lua needs {script}", "add the file through configFileRefs")
    if "enable_stepmgr" in _options(conf, "SlurmctldParameters") and not {"contain", "x11"} & _options(
        conf, "PrologFlags"
    ):
        line = conf.all("SlurmctldParameters")[-1]
        yield _error(line, "enable_stepmgr needs PrologFlags=Contain", "add PrologFlags=Contain to extraConf")
    if (conf.get("SelectType") or "select/cons_tres").lower() != "select/cons_tres":
        yield _error(conf.all("SelectType")[-1], "dynamic workers need SelectType=select/cons_tres")
    preempts = _options(conf, "PreemptMode") - {"off", "gang"}
    if preempts and (conf.get("PreemptType") or "preempt/none").lower() == "preempt/none":
        yield _error(conf.all("PreemptMode")[-1], "PreemptMode needs a PreemptType", "e.g. preempt/partition_prio")


def _options(conf: Conf, key: str) -> set[str]:
    return {option.partition("=")[0].strip().lower() for option in (conf.get(key) or "").split(",")} - {""}


def _scripts(candidate: Candidate) -> Iterator[Finding]:
    for key in ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld"):
        for line in candidate.conf.all(key):
            name = line.value.removeprefix("/etc/slurm/")
            if "/" not in name and "*" not in name and name not in candidate.files:
                yield _error(
                    line, f"{key}={line.value}: there is no such file", f"add {name} through a script reference"
                )


def _traps(candidate: Candidate) -> Iterator[Finding]:
    """What starts, but does not do what was meant."""
    for line in candidate.conf.all("NodeName"):
        if (line.get("State") or "").upper() in ("EXTERNAL", "CLOUD") and not line.get("NodeAddr"):
            yield _warning(line, f"{line.value} has no NodeAddr: each start of slurmctld looks for it for 11 seconds")
    consumes_memory = any("memory" in option for option in _options(candidate.conf, "SelectTypeParameters"))
    if consumes_memory and not any(candidate.conf.all(f"DefMemPer{unit}") for unit in ("CPU", "GPU", "Node")):
        line = candidate.conf.all("SelectTypeParameters")[-1]
        yield _warning(line, "without DefMemPerCPU every job takes all the memory of its nodes")
    gres = parse(candidate.files.get("gres.conf", ""), "gres.conf", candidate.files.get)
    for line in gres.lines:
        if line.get("File") and not line.get("NodeName"):
            yield _warning(line, "a node without this File waits for it for ever", "scope the line with NodeName=")


_RULES: tuple[Callable[[Candidate], Iterator[Finding]], ...] = (
    _readable,
    _values,
    _repeated,
    _partitions,
    _topology,
    _sizes,
    _plugins,
    _scripts,
    _traps,
)
