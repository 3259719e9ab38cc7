"""One watch event from bytes to a value, and what that value costs to keep."""

import gc
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from bench.fresh import in_fresh_process, resident_mb
from bench.pods import Lines
from bench.table import Limit, Options, Row
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.store import Store
from slurm_operator.kube.watch import Added, event_decoder


def measure(options: Options) -> Iterator[Row]:
    count = options.count(5000)
    ours = _microseconds(event_decoder(Pod), count)
    yield Row("decode a watch event", ours, "us", _microseconds(json.loads, count), "json")
    yield Row("decode a watch event", ours, "us", _microseconds(orjson.loads, count), "orjson")
    count = options.count(10_000)
    promise = Limit("figure", "<=", 2.5)
    ours = in_fresh_process(kilobytes, "projection", count)
    for name in ("json", "orjson"):
        plain = in_fresh_process(kilobytes, name, count)
        yield Row("keep a pod", ours, "KB", plain, f"{name} dictionaries", promise)


def _microseconds(decode: Callable[[bytes], Any], count: int) -> float:
    """The best of five rounds, in CPU time: other processes do not count."""
    pods = Lines("pods")
    lines = [pods.event("MODIFIED", number, number) for number in range(count)]
    rounds = []
    for _ in range(5):
        gc.collect()
        began = time.process_time()
        for line in lines:
            decode(line)
        rounds.append(time.process_time() - began)
    return min(rounds) / count * 1e6


def kilobytes(how: str, count: str) -> float:
    """Memory per kept pod; lines are made one at a time, as they would arrive."""
    pods, number = Lines("pods"), int(count)
    keep, kept = _keeper(how)
    keep(pods.event("ADDED", 0, 1))
    before = resident_mb()
    for each in range(1, number):
        keep(pods.event("ADDED", each, each + 1))
    grown = (resident_mb() - before) * 1e3 / number
    if kept() != number:
        raise RuntimeError(f"{kept()} of {number} pods were kept")
    return grown


def _keeper(how: str) -> tuple[Callable[[bytes], object], Callable[[], int]]:
    if how == "projection":
        store: Store[Pod] = Store({"node": lambda pod: (pod.spec.node_name,)})
        decode = event_decoder(Pod)

        def keep(line: bytes) -> None:
            event = decode(line)
            if isinstance(event, Added):
                store.upsert(event.object)

        return keep, lambda: len(store)
    loads: Callable[[bytes], Any] = json.loads if how == "json" else orjson.loads
    dictionaries: list[Any] = []
    return lambda line: dictionaries.append(loads(line)["object"]), lambda: len(dictionaries)
