"""The NodeSet and partition lines of a slurm.conf that the operator has written: read back, and closed to new jobs."""

import re
from collections.abc import Collection
from dataclasses import replace

from slurm_operator.slurm.conf.parser import Line, Pair, host_items, parse
from slurm_operator.slurm.conf.writer import EXTRA, GROUPS, NodeGroup

_NODESET = re.compile(r"NodeSet=(\S+) Feature=\1")
_PARTITION = re.compile(r"PartitionName=(\S+) Nodes=\1(?: (.*))?")
_OWN = re.compile(r"PartitionName=(\S+)(?: (.*))?")
_DEFAULT = "default"
_REPLACED = ("state", "default")


def read_groups(slurm_conf: str) -> tuple[NodeGroup, ...]:
    """Return the groups in the order of their lines, each with the options of its partition as they are written."""
    groups: dict[str, NodeGroup] = {}
    _, _, section = slurm_conf.partition(f"# {GROUPS}\n")
    for line in section.split("\n"):
        if found := _NODESET.fullmatch(line):
            groups[found[1]] = NodeGroup(found[1])
        elif (found := _PARTITION.fullmatch(line)) and found[1] in groups:
            groups[found[1]] = NodeGroup(found[1], found[2] or "")
        elif found := _OWN.fullmatch(line):
            groups[f"own {found[1]}"] = NodeGroup(found[1], found[2] or "", own=True)
        else:
            break
    return tuple(groups.values())


def read_own_partitions(slurm_conf: str) -> tuple[NodeGroup, ...]:
    """Return the partitions of the administrator's own text, each with the defaults that stand before it.

    An option that cannot be written is left out, as in `closed`.
    """
    _, found, extra = slurm_conf.partition(f"\n# {EXTRA}\n")
    groups, defaults = [], dict[str, Pair]()
    for line in parse(extra).all("PartitionName") if found else ():
        options = {pair.key.lower(): pair for pair in line.pairs[1:] if _can_be_written(pair)}
        if line.value.lower() == _DEFAULT:
            defaults |= options
            continue
        pairs = [pair for _, pair in sorted({**defaults, **options}.items())]
        groups.append(NodeGroup(line.value, str(Line(tuple(pairs))), own=True))
    return tuple(groups)


def stands_alone(group: NodeGroup, extra: str, names: Collection[str]) -> bool:
    """Return whether all nodes of a partition are still defined: by these NodeSets, or in the administrator's text."""
    conf = parse(extra)
    known = {*names, *(line.value for line in conf.all("NodeSet"))}
    known |= {item for line in conf.all("NodeName") for item in host_items(line.value)}
    nodes = next((pair.value for line in parse(group.partition or "").lines for pair in line.pairs if _nodes(pair)), "")
    return nodes.upper() == "ALL" or all(item in known for item in host_items(nodes))


def _nodes(pair: Pair) -> bool:
    return pair.key.lower() == "nodes"


def closed(group: NodeGroup, *, bare: bool = False) -> NodeGroup:
    """Return the group with a partition that refuses new jobs and is not the default one.

    slurmctld takes the last default partition, so that a closed one would take submissions from its successor.
    An option that Slurm reads and that cannot be written (it holds a double quote) is left out; `bare`, all but the
    nodes are.
    """
    pairs = [pair for line in parse(group.partition or "").lines for pair in line.pairs]
    kept = [pair for pair in pairs if _nodes(pair)] if bare else pairs
    others = [pair for pair in kept if pair.key.lower() not in _REPLACED and _can_be_written(pair)]
    return replace(group, partition=str(Line((*others, Pair("State", "DRAIN")))))


def _can_be_written(pair: Pair) -> bool:
    try:
        str(pair)
    except ValueError:
        return False
    return True
