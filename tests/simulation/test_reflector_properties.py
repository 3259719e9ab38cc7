"""A store stays equal to the server through any sequence of changes and faults, and no deletion is lost or told twice.

Time is virtual: two silent minutes, or a backoff at its longest, pass in milliseconds.
"""

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.kinds import CONFIG_MAPS, ConfigMap
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.store import Store
from tests.fakes.apiserver import (
    Cluster,
    CutStream,
    Delay,
    Disconnect,
    FailStream,
    FakeApiServer,
    Hang,
    Refuse,
    SilenceStream,
)
from tests.fakes.apiserver.faults import Action
from tests.fakes.clock import FakeClock, VirtualLoop

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["1", "2", "3"])
SELECTED = {"watched": "yes"}
LONG_ENOUGH = 900.0
"""Virtual seconds in which everything must have come right again once the faults are over."""

READ_FAULTS: list[Action] = [
    Refuse(429, retry_after=7),
    Refuse(500),
    Refuse(503),
    Refuse(504, reason="Timeout"),
    Refuse(410),
    Refuse(401),
    Refuse(403),
    Disconnect(),
    Delay(3.0),
    Hang(),
    *(kind(after=after) for kind in (CutStream, SilenceStream) for after in range(3)),
    *(FailStream(code, after) for code in (410, 500, 504) for after in range(3)),
]
WRITE_FAULTS: list[Action] = [Refuse(429, retry_after=1), Refuse(500), Disconnect(), Disconnect(after_effect=True)]


class World:
    """A fake server, a reflector that follows one selection of config maps, and what its handlers were told."""

    def __init__(self, seed: int, watch_list: bool) -> None:
        self.clock = FakeClock()
        self.cluster = Cluster(seed=seed, now=lambda: 0.0)
        self.server = FakeApiServer(self.cluster, seed=seed, watch_list=watch_list)
        self.kind = self.cluster.kind("ConfigMap")
        self.store: Store[ConfigMap] = Store()
        self.present: dict[str, str] = {}
        """Names and uids, as the handlers' calls alone would have it."""
        self.newest: dict[str, int] = {}
        self.violations: list[str] = []
        self.store.subscribe(self._told)
        self.is_up = False

    def _told(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        """Handlers must not raise, so what is wrong is noted: a lost or doubled call, or a step back in time."""
        name = (new or old or ConfigMap()).metadata.name
        if self.present.pop(name, "") != (old.metadata.uid if old else ""):
            self.violations.append(f"{name}: told that {old} went, which was never told to have come")
        if new:
            version = int(new.metadata.resource_version)
            if version <= self.newest.get(name, 0):
                self.violations.append(f"{name}: version {version} told after {self.newest[name]}")
            self.newest[name] = version
            self.present[name] = new.metadata.uid

    async def start(self) -> None:
        await self.server.start()
        self.is_up = True
        self.client = Client(KubeConfig(self.server.url), clock=self.clock)
        self.reflector = Reflector(
            self.client, CONFIG_MAPS, self.store, namespace="default", labels="watched", clock=self.clock
        )
        # A refusal at the very beginning ends a reflector on purpose; here faults begin after that.
        self.task = asyncio.ensure_future(self.reflector.run())
        await asyncio.wait_for(self.store.synced.wait(), LONG_ENOUGH)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.client.close()
        await self.server.stop()

    async def toggle(self) -> None:
        await (self.server.stop() if self.is_up else self.server.start())
        self.is_up = not self.is_up

    async def write(self, name: str, value: str) -> ConfigMap | None:
        manifest = {"metadata": {"name": name, "namespace": "default", "labels": SELECTED}, "data": {"v": value}}
        try:
            return await self.client.apply(CONFIG_MAPS, manifest, manager="us")
        except ApiError:
            return None

    async def recover(self) -> None:
        """End all faults and wait until the store is what the server holds."""
        self.server.faults.clear()
        if not self.is_up:
            await self.toggle()
        deadline = self.clock.monotonic() + LONG_ENOUGH
        while self.held() != self.truth():
            assert not self.task.done(), self.task
            assert self.clock.monotonic() < deadline, f"{self.held()} is not {self.truth()}"
            await asyncio.sleep(10.0)

    def held(self) -> dict[str, tuple[str, str]]:
        return {item.metadata.name: (item.metadata.uid, item.metadata.resource_version) for item in self.store}

    def truth(self) -> dict[str, tuple[str, str]]:
        return {
            obj["metadata"]["name"]: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
            for obj in self.cluster.list(self.kind, "default")
            if "watched" in (obj["metadata"].get("labels") or {})
        }

    def check_handlers(self) -> None:
        """Each coming and each going was told, once: so the calls add up to what is in the store."""
        assert not self.violations
        assert self.present == {item.metadata.name: item.metadata.uid for item in self.store}


class ReflectorMachine(RuleBasedStateMachine):
    answers: Bundle[ConfigMap] = Bundle("answers")

    @initialize(seed=st.integers(0, 2**16), watch_list=st.booleans())
    def begin(self, seed: int, watch_list: bool) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.world = World(seed, watch_list)
        self.runner.run(self.world.start())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.runner.run(self.world.recover())
                self.world.check_handlers()
            finally:
                self.runner.run(self.world.stop())
                self.runner.close()

    def _exists(self, name: str) -> bool:
        return self.world.cluster.storage.get(self.world.kind, ("default", name)) is not None

    # what others do to the cluster

    @rule(name=NAMES, value=VALUES, watched=st.booleans())
    def somebody_writes(self, name: str, value: str, watched: bool) -> None:
        cluster, kind = self.world.cluster, self.world.kind
        labels: dict[str, str | None] = dict(SELECTED) if watched else {"watched": None}
        if self._exists(name):
            cluster.patch(kind, name, "default", {"metadata": {"labels": labels}, "data": {"v": value}})
        else:
            metadata = {"name": name, "labels": SELECTED if watched else {}}
            cluster.create(kind, {"metadata": metadata, "data": {"v": value}}, "default")

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        if self._exists(name):
            self.world.cluster.delete(self.world.kind, name, "default")

    @rule(name=NAMES, value=VALUES)
    def somebody_replaces(self, name: str, value: str) -> None:
        """Gone and back under the same name before anyone could look."""
        self.somebody_deletes(name)
        self.somebody_writes(name, value, watched=True)

    # what we do ourselves

    @precondition(lambda self: self.world.is_up)
    @rule(name=NAMES, value=VALUES)
    def we_write_and_remember(self, name: str, value: str) -> None:
        """The answer to our own write goes into the store before the watch tells of it."""
        if answer := self.runner.run(self.world.write(name, value)):
            self.world.store.upsert(answer)

    @precondition(lambda self: self.world.is_up)
    @rule(target=answers, name=NAMES, value=VALUES)
    def we_write(self, name: str, value: str) -> MultipleResults[ConfigMap]:
        """The answer is on its way, and anything may happen before it arrives."""
        answer = self.runner.run(self.world.write(name, value))
        return multiple(answer) if answer else multiple()

    @rule(answer=consumes(answers))
    def a_late_answer_arrives(self, answer: ConfigMap) -> None:
        self.world.store.upsert(answer)

    # what goes wrong

    @rule(action=st.sampled_from(READ_FAULTS), times=st.integers(1, 4), verb=st.sampled_from(["list", "watch"]))
    def reading_will_fail(self, action: Action, times: int, verb: str) -> None:
        self.world.server.inject(action, verb, times=times)

    @rule(action=st.sampled_from(WRITE_FAULTS))
    def writing_will_fail(self, action: Action) -> None:
        self.world.server.inject(action, "apply")

    @rule()
    def watches_break(self) -> None:
        self.world.server.cut_watches()

    @rule()
    def watches_fall_silent(self) -> None:
        self.world.server.silence_watches()

    @rule()
    def history_is_forgotten(self) -> None:
        self.world.server.expire_watches()

    @rule()
    def the_server_goes_or_comes(self) -> None:
        self.runner.run(self.world.toggle())

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0, 20.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    @rule()
    def faults_end(self) -> None:
        self.runner.run(self.world.recover())
        self.world.check_handlers()


def _machine(examples: int, steps: int) -> Any:
    case = ReflectorMachine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    return case


TestReflector = _machine(examples=100, steps=40)
