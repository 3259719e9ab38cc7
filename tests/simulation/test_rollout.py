"""Random histories of rolling updates and changes of the scaling mode: never more workers away than allowed."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.api import names
from slurm_operator.kube.kinds import Node
from slurm_operator.nodeset.decide import decide
from slurm_operator.slurm.model import Node as SlurmNode
from tests.simulation.nodeset_world import Simulation
from tests.simulation.slurm_truth import Truth
from tests.simulation.test_nodeset_safety import live, settle
from tests.unit.nodeset.make import revision

WORKERS = 5
EVENTS = ("read", "tick", "reconcile", "reconcile", "crash", "job starts", "job ends", "slurm down", "slurm up")


@dataclass
class Rejection(Truth):
    """A node that slurmctld rejected when it registered: drained until it is resumed, or its record deleted."""

    def shown(self, name: str) -> SlurmNode:
        found = super().shown(name)
        return msgspec.structs.replace(found, state=(*found.state, "INVALID_REG"), reason_set_by_user="slurm")


@dataclass
class Cluster(Simulation):
    """Slurm rejects workers of some images, and workers of DaemonSet mode run on their own Node alone."""

    bad_revisions: set[str] = field(default_factory=set)

    def push(self, image: str) -> None:
        """A new template; Slurm rejects the workers of a bad image."""
        self.update_template(image)
        if image.startswith("bad"):
            self.bad_revisions.add(revision(self.nodeset))

    def _start(self, name: str) -> None:
        pod, nodes = self.pods[name], self.nodes
        home = name.removeprefix("gpu-")
        if home in nodes:
            taken = {other.spec.node_name for other in self.pods.values()}
            self.nodes = {} if home in taken else {home: nodes[home]}
        super()._start(name)
        self.nodes = nodes
        truth = self.slurm.get(name)
        if truth is None or self.pods[name].status.phase != "Running":
            return
        if pod.metadata.labels[names.LABEL_REVISION_HASH] in self.bad_revisions:
            self.slurm[name] = Rejection(
                truth.address, truth.started, drain=True, reason="Low RealMemory (reported:1 < 100.00% of configured:2)"
            )
        elif isinstance(truth, Rejection):  # accepted now, but it stays drained
            self.slurm[name] = Truth(truth.address, truth.started, drain=truth.drain, reason=truth.reason)

    def be_daemons(self, count: int) -> None:
        """One worker per Node, which Slurm knows by the name of its pod."""
        self.nodes = {name: _with_name(self.nodes[name]) for name in sorted(self.nodes)[:count]}
        self._respec(scaling_mode="DaemonSet")


def _with_name(node: Node) -> Node:
    note = {names.ANNOTATION_HOSTNAME_OVERRIDE: f"gpu-{node.metadata.name}"}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=note))


def started(limit: int, nodes: int = 8) -> Cluster:
    """Return a NodeSet at rest that may lack so many workers."""
    history = Cluster(decide)
    history.nodes = dict(sorted(history.nodes.items())[:nodes])
    history.scale(WORKERS)
    settle(history)
    strategy = history.nodeset.spec.update_strategy
    rolling = msgspec.structs.replace(strategy.rolling_update, max_unavailable=limit)
    history._respec(update_strategy=msgspec.structs.replace(strategy, rolling_update=rolling))
    return history


def steps(history: Cluster, count: int) -> None:
    for _ in range(count):
        history.read()
        history.reconcile()
        history.tick()


def test_an_update_that_slurm_rejects_takes_no_more_than_one_worker() -> None:
    """The pods of the new workers are Ready all the time."""
    history = started(1)
    history.push("bad:1")
    steps(history, 40)
    assert history.in_service() == WORKERS - 1


def test_further_bad_templates_cost_no_further_workers() -> None:
    history = started(1)
    for number in range(6):
        history.push(f"bad:{number}")
        steps(history, 12)
        assert history.in_service() == WORKERS - 1


def test_an_update_resumes_by_itself_once_the_template_is_corrected() -> None:
    history = started(1)
    history.push("bad:1")
    steps(history, 40)
    history.push("good:2")
    settle(history)
    assert history.in_service() == WORKERS
    found = {pod.metadata.labels[names.LABEL_REVISION_HASH] for pod in history.pods.values()}
    assert found == {revision(history.nodeset)}


def test_an_update_resumes_by_itself_once_a_template_can_be_built_again() -> None:
    history = started(1)
    broken: dict[str, Any] = {"containers": [{"name": "exporter"}]}
    good = history.nodeset.spec.template
    history._respec(template=msgspec.structs.replace(good, spec=broken))
    steps(history, 20)
    assert history.in_service() == WORKERS
    sound = {"containers": [{"name": "exporter", "image": "exporter"}]}
    history._respec(template=msgspec.structs.replace(good, spec=sound))
    settle(history)
    assert history.in_service() == WORKERS
    found = {pod.metadata.labels[names.LABEL_REVISION_HASH] for pod in history.pods.values()}
    assert found == {revision(history.nodeset)}


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.integers(1, 4))
def test_no_history_of_templates_takes_more_workers_than_may_be_away(seed: int, limit: int) -> None:
    """Good and bad templates follow each other in the middle of updates, with outages and crashes in between."""
    rng = random.Random(seed)
    history = started(limit)
    for number in range(80):
        if rng.random() < 0.1:
            history.push(f"{rng.choice(('bad', 'good'))}:{number}")
        live(history, rng.choice(EVENTS), rng)
        assert history.in_service() >= WORKERS - limit
    history.push("good:last")
    settle(history, 120)
    assert history.in_service() == WORKERS


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.integers(1, 4), st.booleans())
def test_a_change_of_the_scaling_mode_takes_no_more_workers_than_may_be_away(
    seed: int, limit: int, updates: bool
) -> None:
    """The successor of a worker has no room on its Node before the worker has left."""
    rng = random.Random(seed)
    history = started(limit, nodes=WORKERS)
    history.be_daemons(WORKERS)
    if updates:
        history.push("good:1")
    for _ in range(60):
        live(history, rng.choice(EVENTS), rng)
        assert history.in_service() >= WORKERS - limit
    settle(history, 120)
    assert history.in_service() == WORKERS
    assert all(name.startswith("gpu-k") for name in history.pods)


@pytest.mark.parametrize("way", ["update", "mode"])
def test_the_limit_is_noticed_when_it_is_passed(way: str) -> None:
    """A decision that takes every worker at once must not survive the same steps."""
    history = started(1, nodes=WORKERS)
    history.decide = lambda world: decide(replace(world, nodeset=_without_limit(history)))
    if way == "update":
        history.push("bad:1")
    else:
        history.be_daemons(WORKERS)
    steps(history, 3)
    assert history.in_service() < WORKERS - 1


def _without_limit(history: Cluster) -> Any:
    spec = history.nodeset.spec
    rolling = msgspec.structs.replace(spec.update_strategy.rolling_update, max_unavailable="100%")
    strategy = msgspec.structs.replace(spec.update_strategy, rolling_update=rolling)
    return msgspec.structs.replace(history.nodeset, spec=msgspec.structs.replace(spec, update_strategy=strategy))
