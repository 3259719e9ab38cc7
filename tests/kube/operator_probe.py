"""`slurm-operator` that tells, on SIGUSR1, how many tasks it has and how much each of its objects remembers.

    python -m tests.kube.operator_probe FILE run --kubeconfig=... ...

The counting happens in a fork, so that the process itself neither waits nor grows.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_operator.cli import main

_HOLDERS = (dict, set, list, deque)


def remembered() -> dict[str, int]:
    """Entries of all containers that the operator's objects hold, by class and attribute."""
    found: Counter[str] = Counter()
    for obj in gc.get_objects():
        kind = type(obj)
        module = kind.__module__
        if module.startswith("slurm_operator.") and not module.startswith("slurm_operator.api."):  # values of users
            for attribute, held in _attributes(obj):
                if isinstance(held, _HOLDERS):
                    found[f"{kind.__module__.removeprefix('slurm_operator.')}.{kind.__name__}.{attribute}"] += len(held)
    return dict(sorted(found.items()))


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    slots = {name for kind in type(obj).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)}
    for name in {*getattr(obj, "__dict__", {}), *slots}:
        yield name, getattr(obj, name, None)


def tell(file: Path) -> None:
    if os.fork():
        return
    try:
        tasks = Counter(task.get_name().rsplit("-", 1)[0] for task in asyncio.tasks._all_tasks if not task.done())  # type: ignore[attr-defined] # of all loops
        written = file.with_suffix(".new")
        written.write_text(json.dumps({"tasks": tasks.total(), "by name": tasks, "remembered": remembered()}))
        written.rename(file)
    finally:
        os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: tell(Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
