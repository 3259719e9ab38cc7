"""Plans: what is done, in which order, and what one failure means for the rest."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    Call,
    Conflict,
    Forbidden,
    Invalid,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from slurm_operator.runtime.execute import Failure, PlanError, execute
from slurm_operator.runtime.plan import Done, InOrder, Plan, Result, Urgency, soonest, summary
from tests.fakes.clock import FakeClock, run_virtual


@dataclass
class Log:
    """A world that remembers who touched it, and how many at once."""

    done: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    running: int = 0


@dataclass(frozen=True)
class Step:
    name: str
    fails: str | Exception = ""
    takes: float = 1.0
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""
    answer: Done | None = field(default_factory=Done)

    def __str__(self) -> str:
        return self.name

    def describe(self) -> dict[str, Any]:
        return {"step": self.name}

    async def run(self, world: Log) -> Done | None:
        world.tried.append(self.name)
        world.running += 1
        world.at_once.append(world.running)
        try:
            await asyncio.sleep(self.takes)
        finally:
            world.running -= 1
        if self.fails:
            raise RuntimeError(self.fails) if isinstance(self.fails, str) else self.fails
        world.done.append(self.name)
        return self.answer


async def test_one_failing_step_stops_no_other_and_is_told_once() -> None:
    """scenario 1"""
    world = Log()
    outcome = await execute([Step("A", fails="no"), Step("B"), Step("C", takes=2)], world)
    assert world.done == ["B", "C"]
    assert [str(failure) for failure in outcome.failures] == ["A: no"]
    with pytest.raises(PlanError, match=r"1 of 3 actions failed: A: no"):
        outcome.result()


async def test_steps_in_order_end_with_the_first_failure() -> None:
    """scenario 2"""
    world = Log()
    outcome = await execute([InOrder((Step("A", fails="no"), Step("B"), Step("C")))], world)
    assert world.tried == ["A"]
    assert len(outcome.failures) == 1


async def test_an_empty_plan_succeeds() -> None:
    """scenario 2"""
    assert (await execute(Plan[Log]().actions, Log())).result(after=30.0) == Result(after=30.0)


async def test_two_failures_are_reported_in_the_order_of_the_plan() -> None:
    """scenario 3"""
    outcome = await execute([Step("A", fails="slow", takes=9), Step("B"), Step("C", fails="quick")], Log())
    with pytest.raises(PlanError, match=r"2 of 3 actions failed: A: slow; C: quick") as caught:
        outcome.result()
    assert caught.value.failures == outcome.failures


async def test_a_lane_begins_slowly() -> None:
    """scenario 4: batches of 1, 2, 4, 3"""
    world = Log()
    outcome = await execute([Step(str(n), lane="create Pod") for n in range(10)], world, seconds=60)
    assert world.at_once == [1, 1, 2, 1, 2, 3, 4, 1, 2, 3]
    assert (outcome.done, outcome.left) == (10, 0)


async def test_a_lane_ends_with_the_first_batch_that_has_a_failure() -> None:
    """scenario 4: item 2 fails, later batches are untouched, successes are counted"""
    world = Log()
    steps = [Step(str(n), fails="quota" if n == 1 else "", lane="create Pod") for n in range(10)]
    outcome = await execute([*steps, Step("other")], world)
    assert sorted(world.tried) == ["0", "1", "2", "other"]
    assert (outcome.done, len(outcome.failures), outcome.left) == (3, 1, 7)


async def test_a_lane_at_full_width_ends_soon_after_a_failure() -> None:
    world = Log()
    steps = [Step(str(n), fails="quota" if n == 100 else "", lane="create Pod") for n in range(1000)]
    outcome = await execute(steps, world, parallel=8, seconds=1e6)
    assert len(outcome.failures) == 1
    assert len(world.tried) < 101 + 8
    assert max(world.at_once) == 8


CALL = Call("create", "pods", "Pod", "p", "ns")
BAD_NAME = Invalid(CALL, "metadata.name: Invalid value", status=422)
TAKEN = AlreadyExists(CALL, 'pods "p" already exists', status=409)


@pytest.mark.parametrize("refusal", [BAD_NAME, TAKEN], ids=["invalid", "already exists"])
@pytest.mark.parametrize("bad", [{0}, {4}, {0, 3, 30, 31}], ids=str)
async def test_an_object_that_is_refused_for_itself_stops_no_other_of_its_lane(
    refusal: ApiError, bad: set[int]
) -> None:
    world = Log()
    steps = [Step(str(n), fails=refusal if n in bad else "", lane="create Pod") for n in range(50)]
    outcome = await execute(steps, world, seconds=1e6)
    assert sorted(map(int, world.done)) == [n for n in range(50) if n not in bad]
    assert [failure.action for failure in outcome.failures] == [steps[n] for n in sorted(bad)]
    assert outcome.left == 0


async def test_a_lane_ends_if_none_of_its_first_objects_is_accepted() -> None:
    """A template that is bad itself costs three refused requests a pass, not a thousand."""
    world = Log()
    steps = [Step(str(n), fails=BAD_NAME, lane="create Pod") for n in range(1000)]
    outcome = await execute([*steps, Step("other")], world, seconds=1e6)
    assert sorted(world.tried) == ["0", "1", "2", "other"]
    assert (outcome.done, len(outcome.failures), outcome.left) == (1, 3, 997)


async def test_the_first_objects_are_counted_even_if_actions_run_one_by_one() -> None:
    world = Log()
    await execute([Step(str(n), fails=TAKEN, lane="create Pod") for n in range(9)], world, parallel=1, seconds=1e6)
    assert world.tried == ["0", "1", "2"]


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(CALL, "exceeded quota", status=403),
        Invalid(CALL, "the body cannot be read", status=400),
        Conflict(CALL, "changed meanwhile", status=409),
        TooManyRequests(CALL, "slow down", status=429),
        ServerError(CALL, "etcd is gone", status=500),
        Unreachable(CALL, "no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_that_the_next_object_would_meet_ends_the_lane_at_once(error: ApiError) -> None:
    world = Log()
    fails: list[str | Exception] = [BAD_NAME, "", error]
    steps = [Step(str(n), fails=fails[n] if n < 3 else "", lane="create Pod") for n in range(10)]
    outcome = await execute(steps, world, seconds=1e6)
    assert sorted(world.tried) == ["0", "1", "2"]
    assert outcome.left == 7


async def test_an_object_that_hangs_ends_its_lane() -> None:
    world = Log()
    steps = [Step(str(n), takes=1e6 if n == 0 else 1.0, lane="create Pod") for n in range(10)]
    outcome = await execute(steps, world, patience=30, seconds=1e6)
    assert (world.tried, outcome.left) == (["0"], 9)


async def test_without_a_lane_nine_of_ten_succeed_and_parallelism_is_bounded() -> None:
    """scenario 5"""
    world = Log()
    outcome = await execute([Step(str(n), fails="no" if n == 3 else "") for n in range(10)], world, parallel=4)
    assert (outcome.done, len(outcome.failures), outcome.left) == (9, 1, 0)
    assert max(world.at_once) == 4


@given(
    fails=st.lists(st.booleans(), max_size=60),
    parallel=st.integers(1, 9),
    takes=st.lists(st.sampled_from([0.0, 0.1, 3.0]), min_size=60, max_size=60),
)
def test_whatever_fails_the_others_are_done(fails: list[bool], parallel: int, takes: list[float]) -> None:
    """scenario 5"""
    world = Log()
    steps = [
        Step(str(n), fails="no" if bad else "", takes=time)
        for n, (bad, time) in enumerate(zip(fails, takes, strict=False))
    ]
    outcome = run_virtual(execute(steps, world, parallel=parallel, seconds=1e9))
    assert [failure.action for failure in outcome.failures] == [step for step in steps if step.fails]
    assert list(outcome.wrote) == [step for step in steps if not step.fails]
    assert outcome.left == 0
    assert max(world.at_once, default=0) <= parallel


async def test_the_smallest_wish_to_look_again_wins() -> None:
    """scenario 6"""
    assert soonest(30, 10, 15 * 60) == 10
    assert soonest(None, 5, None) == 5
    assert soonest(None) is soonest() is None
    steps = (Step("a", answer=Done(after=30)), Step("b", answer=Done(after=10)), Step("c"))
    assert (await execute(steps, Log())).result(after=900).after == 10
    assert (await execute([InOrder(steps)], Log())).result(after=900).after == 10
    assert (await execute(steps, Log())).result(after=5).after == 5


async def test_only_what_changed_something_is_worth_a_line() -> None:
    quiet = Done(wrote=False)
    outcome = await execute([Step("apply a", answer=quiet), Step("delete b"), Step("drain c", answer=None)], Log())
    assert outcome.result().note == "delete b; drain c"
    assert (await execute([InOrder((Step("x", answer=quiet),))], Log())).result().note == ""


async def test_safety_comes_first_and_the_report_last() -> None:
    world = Log()
    await execute(
        [
            Step("report", urgency=Urgency.STATUS),
            Step("create"),
            Step("drain", urgency=Urgency.SAFETY),
            InOrder((Step("note cause"), Step("undrain", urgency=Urgency.SAFETY))),
        ],
        world,
    )
    assert world.done == ["drain", "note cause", "undrain", "create", "report"]


async def test_after_its_slice_the_rest_is_left_but_safety_and_report_are_not(clock: FakeClock) -> None:
    world = Log()
    safety = [Step(f"drain {n}", urgency=Urgency.SAFETY) for n in range(8)]
    pods = [Step(f"pod {n}") for n in range(100)]
    report = Step("report", urgency=Urgency.STATUS)
    outcome = await execute([report, *pods, *safety], world, parallel=2, seconds=10, clock=clock)
    assert world.done[:8] == [f"drain {n}" for n in range(8)]
    assert world.done[-1] == "report"
    assert outcome.done == 8 + 2 * 6 + 1
    assert outcome.left == 100 - 2 * 6
    assert outcome.after == 0.0


async def test_a_slice_spent_on_safety_leaves_all_normal_work(clock: FakeClock) -> None:
    world = Log()
    outcome = await execute(
        [Step("drain", urgency=Urgency.SAFETY, takes=20), Step("pod"), Step("pod2", lane="create")], world, clock=clock
    )
    assert world.tried == ["drain"]
    assert outcome.left == 2


async def test_an_action_that_hangs_is_given_up_alone() -> None:
    world = Log()
    outcome = await execute([Step("hangs", takes=1e6), Step("works")], world, patience=30)
    assert world.done == ["works"]
    assert [str(failure) for failure in outcome.failures] == ["hangs: no answer within 30 s"]


async def test_an_error_without_words_is_named() -> None:
    assert str(Failure("drain node", KeyError())) == "drain node: KeyError"


async def test_a_cancelled_execution_begins_nothing_more() -> None:
    world = Log()
    running = asyncio.create_task(execute([Step(str(n)) for n in range(9)], world, parallel=3))
    await asyncio.sleep(0.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (world.tried, world.done, world.running) == (["0", "1", "2"], [], 0)


def test_a_plan_can_be_read() -> None:
    plan = Plan((Step("a"), InOrder((Step("b"), Step("c")))))
    assert str(plan) == "a; b, then c"
    assert plan.describe() == [{"step": "a"}, {"in order": [{"step": "b"}, {"step": "c"}]}]
    assert plan
    assert not Plan[Log]()
    assert str(Plan[Log]()) == "nothing to do"
    assert summary(range(5)) == "0; 1; 2 and 2 more"


@dataclass(frozen=True)
class WaitsForCancelled:
    """An action whose answer comes from a task that was cancelled, as when a connection is closed under it."""

    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def describe(self) -> dict[str, Any]:
        return {}

    async def run(self, hands: object) -> None:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        await answer


async def test_an_action_that_meets_a_cancelled_task_has_failed() -> None:
    """It is retried with a back-off, and not at once for ever as something that was left."""
    outcome = await execute([WaitsForCancelled()], None)
    assert (outcome.left, outcome.after) == (0, None)
    with pytest.raises(PlanError, match="what it waited for was cancelled"):
        outcome.result()
