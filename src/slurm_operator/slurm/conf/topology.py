"""What a topology.yaml defines: its topologies and the switches or blocks in each."""

from collections.abc import Iterator

import yaml


def read_topologies(text: str) -> dict[str, frozenset[str]]:
    """Units by topology name; ValueError with the reason when slurmctld could not load the file."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"not YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ValueError("must be a list of topologies")
    topologies: dict[str, frozenset[str]] = {}
    for entry in document:
        name = entry.get("topology")
        if not isinstance(name, str):
            raise ValueError("an entry has no name: topology: <name>")
        if name in topologies:
            raise ValueError(f"topology {name} is defined twice")
        topologies[name] = frozenset(_units(entry))
    return topologies


def _units(value: object) -> Iterator[str]:
    """Names of switches and blocks, at whatever depth they stand."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("switch", "block", "ring") and isinstance(inner, str):
                yield inner
            else:
                yield from _units(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _units(inner)
