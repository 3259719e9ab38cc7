"""The NodeSet and partition lines of a slurm.conf that the operator has written: read back, and closed to new jobs."""

import re
from dataclasses import replace

from slurm_operator.slurm.conf.parser import Line, Pair, parse
from slurm_operator.slurm.conf.writer import GROUPS, NodeGroup

_NODESET = re.compile(r"NodeSet=(\S+) Feature=\1")
_PARTITION = re.compile(r"PartitionName=(\S+) Nodes=\1(?: (.*))?")
_REPLACED = ("state", "default")


def read_groups(slurm_conf: str) -> tuple[NodeGroup, ...]:
    """Return the groups in the order of their lines, each with the options of its partition as they are written."""
    groups: dict[str, NodeGroup] = {}
    _, _, section = slurm_conf.partition(f"# {GROUPS}\n")
    for line in section.split("\n"):
        if found := _NODESET.fullmatch(line):
            groups[found[1]] = NodeGroup(found[1])
        elif found := _PARTITION.fullmatch(line):
            groups[found[1]] = NodeGroup(found[1], found[2] or "")
        else:
            break
    return tuple(groups.values())


def closed(group: NodeGroup) -> NodeGroup:
    """Return the group with a partition that refuses new jobs and is not the default one.

    slurmctld takes the last default partition, so that a closed one would take submissions from its successor.
    An option that Slurm reads and that cannot be written (it holds a double quote) is left out.
    """
    pairs = [pair for line in parse(group.partition or "").lines for pair in line.pairs]
    others = [pair for pair in pairs if pair.key.lower() not in _REPLACED and _can_be_written(pair)]
    return replace(group, partition=str(Line((*others, Pair("State", "DRAIN")))))


def _can_be_written(pair: Pair) -> bool:
    try:
        str(pair)
    except ValueError:
        return False
    return True
