"""A thousand workers from NodeSet to pods, at rest, drained from both sides and scaled in, beside loops that only send.

The Go operator's figures are of the same set-up: its 1.3.0-rc1 with 1,000 workers, on two cores with all of the stage.
"""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bench.simulated import (
    BARE,
    CONTROLLER,
    KWOK,
    LOOP,
    NAMESPACE,
    NODESET,
    OPERATOR,
    OperatorProcess,
    Stage,
    bare_pods,
    simulated_stage,
    until,
)
from bench.table import Limit, Options, Row
from slurm_local.audit import Request
from slurm_operator.api import names
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS, Pod
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.manager import run
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.states import is_drain

GO = "Go operator"
WARM_UP = 50
CONDITION_SECONDS = 12.0
QUIET_SECONDS = 6.0
POLL_SECONDS = 0.02
DRAIN = f"{names.POD_CONDITION_PREFIX}Drain"


@dataclass(frozen=True, slots=True)
class Bare:
    """Seconds of loops that do nothing else."""

    create: float
    delete: float


@dataclass(frozen=True, slots=True)
class Created:
    seconds: float
    cpu: float
    slurm_requests: int
    until_told: float
    """From the last pod that runs to the last condition on a pod."""
    silent: int
    """Pods that do not say what Slurm thinks of them."""


@dataclass(frozen=True, slots=True)
class AtRest:
    """For a minute."""

    cpu: float
    memory: float
    writes: float
    reads: float
    news: float
    """Answers of slurmrestd that are not "nothing changed"."""
    kilobytes: float


@dataclass(frozen=True, slots=True)
class ScaledIn:
    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Delays:
    drain: Sequence[float]
    cordon: Sequence[float]
    uncordon: Sequence[float]


def measure(options: Options) -> list[Row]:
    return run(_measure(options.count(1000), 10 if options.quick else 60, options.count(20)))


async def _measure(workers: int, seconds: float, samples: int) -> list[Row]:
    _note("starting Kubernetes and Slurm")
    async with simulated_stage(workers) as stage:
        _note("bare loops")
        for count in (WARM_UP, workers):
            bare = Bare(await _bare_create(stage, count), await _bare_delete(stage, count))
        async with OperatorProcess(stage).run() as operator:
            await _quiet(stage)
            _note("the operator creates workers")
            created = await _create(stage, operator)
            _note("at rest")
            rest = await _rest(stage, operator, seconds)
            _note("drains and cordons")
            delays = Delays(await _drains(stage, samples // 2 or 1), *await _cordons(stage, samples))
            await _quiet(stage)
            _note("half of the workers go")
            scaled = await _scale_in(stage, operator)
        await _clear(stage)
        _note("a bare loop")
        # The stage gets slower or faster with what it went through: once before and once after is fair.
        bare = replace(bare, create=statistics.mean([bare.create, await _bare_create(stage, workers)]))
    return _rows(f"{workers:,} workers", bare, created, rest, delays, scaled)


def _note(what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {what} ...", file=sys.stderr, flush=True)


def _rows(name: str, bare: Bare, created: Created, rest: AtRest, delays: Delays, scaled: ScaledIn) -> list[Row]:
    return [
        Row(f"{name}: NodeSet to last pod", created.seconds, "s", bare.create, "bare loop", Limit("ratio", "<=", 1.3)),
        Row(f"{name}: the same, in bare loops", created.seconds / bare.create, "", 17, GO),
        Row(f"{name}: the same", created.cpu, "CPU s", 13, GO),
        Row(f"{name}: requests to Slurm meanwhile", created.slurm_requests, "", 3300, GO),
        Row(f"{name}: last pod runs to last condition", created.until_told, "s"),
        Row(f"{name}: pods without a condition", created.silent, "", 500, GO, Limit("figure", "<=", 0)),
        Row(f"{name}, at rest: we", rest.cpu, "CPU s/min", 7.7, GO, Limit("figure", "<=", 0.5)),
        Row(f"{name}, at rest: memory", rest.memory, "MB", 205, GO, Limit("figure", "<=", 100)),
        Row(f"{name}, at rest: writes to Kubernetes", rest.writes, "1/min", 8, GO, Limit("figure", "<=", 0)),
        Row(f"{name}, at rest: reads of Slurm", rest.reads, "1/min", 11, GO, Limit("figure", "<=", 70)),
        Row(f"{name}, at rest: those with news", rest.news, "1/min", 11, GO, Limit("figure", "<=", 3)),
        Row(f"{name}, at rest: from slurmrestd", rest.kilobytes, "KB/min", 16_000, GO, Limit("figure", "<=", 100)),
        *_delay(f"{name}: scontrol drain to condition", delays.drain, 5.6, 6.5),
        *_delay(f"{name}: cordon to drain", delays.cordon, 5.6, 7.8),
        *_delay(f"{name}: uncordon to undrain", delays.uncordon, 5.6, 7.3),
        Row(f"{name}: half of them gone", scaled.seconds, "s", bare.delete, "bare loop", Limit("ratio", "<=", 1.5)),
        Row(f"{name}: the same", scaled.seconds, "s", 66, GO),
        Row(f"{name}: the same", scaled.cpu, "CPU s", 22.6, GO),
    ]


def _delay(name: str, seconds: Sequence[float], median: float, worst: float) -> list[Row]:
    return [
        Row(f"{name}, median", statistics.median(seconds), "s", median, GO),
        Row(f"{name}, worst", max(seconds), "s", worst, GO, Limit("figure", "<=", 2)),
    ]


# --- loops that do nothing else -----------------------------------------------------------------------------------


async def _bare_create(stage: Stage, count: int) -> float:
    mark = stage.audit.mark()
    await stage.loop.create(bare_pods(count))
    created = stage.audit.since(mark, user=LOOP, verb="create", resource="pods")
    return _span(created, created)


async def _bare_delete(stage: Stage, count: int) -> float:
    """Of the second half of them; then the others go too."""
    await until(lambda: stage.running(BARE, count), pause=1.0)
    pods = [pod["metadata"]["name"] for pod in bare_pods(count)]
    seconds = await _deleted(stage, pods[count // 2 :])
    await _deleted(stage, pods[: count // 2])
    return seconds


async def _deleted(stage: Stage, pods: Sequence[str]) -> float:
    mark = stage.audit.mark()
    await stage.loop.delete(pods)
    await until(lambda: _ended(stage, mark, len(pods)))
    return _span(stage.audit.since(mark, user=LOOP, verb="delete", resource="pods"), _ends(stage, mark))


def _ends(stage: Stage, mark: int) -> list[Request]:
    """Pods that have really gone: their kubelet lets go of them."""
    return [one for one in stage.audit.since(mark, user=KWOK, verb="delete", resource="pods") if one.worked]


async def _ended(stage: Stage, mark: int, count: int) -> bool:
    return len(_ends(stage, mark)) >= count


def _span(first: Iterable[Request], last: Iterable[Request]) -> float:
    began, ended = min(one.received for one in first), max(one.done for one in last)
    return (ended - began).total_seconds()


async def _clear(stage: Stage) -> None:
    """The operator is gone: what it held back goes too."""
    await stage.admin.patch(NODESETS, NODESET, {"metadata": {"finalizers": []}}, NAMESPACE)
    await stage.admin.delete(NODESETS, NODESET, NAMESPACE, propagation="Background")
    await stage.admin.delete(POD_DISRUPTION_BUDGETS, names.workers_budget(CONTROLLER), NAMESPACE)
    await until(lambda: stage.running(NAMESPACE, 0), pause=1.0)


# --- the operator at work -----------------------------------------------------------------------------------------


async def _quiet(stage: Stage) -> None:
    """Returns when the operator has written nothing for a while."""
    began, count = time.monotonic(), -1
    mark = stage.audit.mark()
    while time.monotonic() - began < QUIET_SECONDS:
        await asyncio.sleep(0.5)
        if (writes := len(_writes(stage, mark))) != count:
            began, count = time.monotonic(), writes


def _writes(stage: Stage, mark: int) -> list[Request]:
    return [request for request in stage.audit.since(mark, user=OPERATOR) if request.is_write]


async def _create(stage: Stage, operator: OperatorProcess) -> Created:
    mark, cpu, traffic = stage.audit.mark(), operator.cpu_seconds, stage.proxy.seen.copy()
    await stage.apply_nodeset()

    def created() -> list[Request]:
        return [one for one in stage.audit.since(mark, user=OPERATOR, verb="create", resource="pods") if one.worked]

    async def all_created() -> bool:
        return len(created()) >= stage.workers

    await until(all_created)
    spent = operator.cpu_seconds - cpu
    asked = stage.proxy.seen.since(traffic).requests.total()
    await stage.register_workers()
    await until(lambda: stage.running(NAMESPACE, stage.workers), pause=1.0)
    await asyncio.sleep(CONDITION_SECONDS)
    pods = (await stage.admin.list(PODS, NAMESPACE, labels=f"{names.LABEL_APP}={names.APP_SLURMD}")).items
    applied = stage.audit.since(mark, verb="patch", resource="nodesets")[:1]
    states = [one for one in stage.audit.since(mark, resource="pods") if one.object_ref.subresource == "status"]
    told = [one.done for one in states if one.user.username == OPERATOR]
    ran = [one.done for one in states if one.user.username == KWOK]
    late = (max(told) - max(ran)).total_seconds() if told and ran else float("nan")
    silent = sum(not _says(pod) for pod in pods)
    return Created(_span(applied, created()), spent, asked, late, silent)


def _says(pod: Pod) -> set[str]:
    """The Slurm states that a pod shows."""
    return {c.type for c in pod.status.conditions if c.type.startswith(names.POD_CONDITION_PREFIX) and c.is_true}


async def _rest(stage: Stage, operator: OperatorProcess, seconds: float) -> AtRest:
    await _quiet(stage)
    mark, cpu, traffic = stage.audit.mark(), operator.cpu_seconds, stage.proxy.seen.copy()
    await asyncio.sleep(seconds)
    minute = 60 / seconds
    passed = stage.proxy.seen.since(traffic)
    return AtRest(
        cpu=(operator.cpu_seconds - cpu) * minute,
        memory=operator.resident_mb,
        writes=len(_writes(stage, mark)) * minute,
        reads=passed.requests.total() * minute,
        news=(passed.answers.total() - passed.answers["304"]) * minute,
        kilobytes=passed.size / 1e3 * minute,
    )


async def _scale_in(stage: Stage, operator: OperatorProcess) -> ScaledIn:
    mark, cpu = stage.audit.mark(), operator.cpu_seconds
    half = stage.workers // 2
    await stage.admin.patch(NODESETS, NODESET, {"spec": {"replicas": stage.workers - half}}, NAMESPACE)
    await until(lambda: _ended(stage, mark, half))
    spent = operator.cpu_seconds - cpu
    asked = stage.audit.since(mark, verb="patch", resource="nodesets")[:1]
    return ScaledIn(_span(asked, _ends(stage, mark)), spent)


# --- from one world to the other ----------------------------------------------------------------------------------


async def _drains(stage: Stage, samples: int) -> list[float]:
    """An administrator drains a node in Slurm: when does its pod say so?"""
    found = []
    for number in _some(stage.workers, samples):
        name = f"{NODESET}-{number}"
        found.append(
            await _delay_of(
                stage.lab.scontrol(f"update nodename={name} state=drain reason=bench"),
                _pod_says(stage, name, lambda said: DRAIN in said),
            )
        )
        await stage.lab.scontrol(f"update nodename={name} state=undrain")
        await _pod_says(stage, name, lambda said: DRAIN not in said)
    return found


async def _cordons(stage: Stage, samples: int) -> tuple[list[float], list[float]]:
    """An administrator cordons a Kubernetes Node and lets it go again: when does Slurm follow?"""
    cordons: list[float] = []
    uncordons: list[float] = []
    async with SlurmClient(stage.lab.url, stage.lab.jwt_key, SystemClock()) as slurm:
        for number in _some(stage.workers, samples):
            name = f"{NODESET}-{number}"
            node = (await stage.admin.get(PODS, name, NAMESPACE)).spec.node_name
            for wanted, delays in ((True, cordons), (False, uncordons)):
                delays.append(
                    await _delay_of(
                        stage.admin.patch(NODES, node, {"spec": {"unschedulable": wanted}}),
                        _slurm_says(slurm, name, drained=wanted),
                    )
                )
    return cordons, uncordons


def _some(count: int, samples: int) -> list[int]:
    return random.Random(0).sample(range(count), min(count, samples))


async def _delay_of(cause: Awaitable[object], effect: Awaitable[None]) -> float:
    """At any moment between two polls, so that none of them is favoured."""
    waiting = asyncio.ensure_future(effect)
    await asyncio.sleep(random.uniform(0.2, 1.2))
    began = time.monotonic()
    await cause
    async with asyncio.timeout(60):
        await waiting
    return time.monotonic() - began


async def _pod_says(stage: Stage, name: str, meant: Callable[[set[str]], bool]) -> None:
    pod = await stage.admin.get(PODS, name, NAMESPACE)
    if meant(_says(pod)):
        return
    version = pod.metadata.resource_version
    events = stage.admin.watch(PODS, NAMESPACE, fields=f"metadata.name={name}", resource_version=version)
    async for event in events:
        found = getattr(event, "object", None)
        if isinstance(found, Pod) and meant(_says(found)):
            break
    await events.aclose()


async def _slurm_says(slurm: SlurmClient, name: str, *, drained: bool) -> None:
    while is_drain((await slurm.node(name)).state) is not drained:  # noqa: ASYNC110 - Slurm sends no events
        await asyncio.sleep(POLL_SECONDS)
