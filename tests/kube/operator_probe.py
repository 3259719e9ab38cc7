"""`slurm-operator` that tells, on SIGUSR1, how many tasks and files it has and how much each of its objects remembers.

    python -m tests.kube.operator_probe FILE run --kubeconfig=... ...

The counting happens in a fork, so that the process itself neither waits nor grows.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from slurm_operator.cli import main
from slurm_operator.slurm.transport import HttpTransport

_HOLDERS = (dict, set, list, deque)


def remembered() -> dict[str, int]:
    """Entries of all containers that the operator's objects hold, by class and attribute."""
    found: Counter[str] = Counter()
    for obj in gc.get_objects():
        kind = type(obj)
        module = str(kind.__module__)  # a descriptor for some types of libraries
        if module.startswith("slurm_operator.") and not module.startswith("slurm_operator.api."):  # values of users
            for attribute, held in _attributes(obj):
                if isinstance(held, _HOLDERS):
                    found[f"{module.removeprefix('slurm_operator.')}.{kind.__name__}.{attribute}"] += len(held)
    return dict(sorted(found.items()))


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    slots = {name for kind in type(obj).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)}
    for name in {*getattr(obj, "__dict__", {}), *slots}:
        yield name, getattr(obj, name, None)


def files_in_use() -> int:
    """Open files but for idle connections: how many of those there are depends on the last half minute."""
    connectors = [obj for obj in gc.get_objects() if isinstance(obj, aiohttp.BaseConnector)]
    idle = sum(len(connections) for connector in connectors for connections in connector._conns.values())
    pools = [obj for obj in gc.get_objects() if isinstance(obj, HttpTransport)]
    return len(list(Path("/proc/self/fd").iterdir())) - idle - sum(len(pool._idle) for pool in pools)


def tell(file: Path) -> None:
    if os.fork():
        return
    try:
        gc.unfreeze()  # what existed when the operator began to work is hidden from get_objects
        tasks = Counter(task.get_name().rsplit("-", 1)[0] for task in asyncio.tasks._all_tasks if not task.done())  # type: ignore[attr-defined] # of all loops
        written = file.with_suffix(".new")
        found = {"tasks": tasks.total(), "files": files_in_use(), "by name": tasks, "remembered": remembered()}
        written.write_text(json.dumps(found))
        written.rename(file)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: tell(Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
