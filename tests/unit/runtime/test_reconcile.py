"""The loop that all kinds share: what is refused is told, what works again is taken back."""

from dataclasses import dataclass, field

import pytest

from slurm_operator.errors import UserError
from slurm_operator.kube.apply import NotOurs
from slurm_operator.kube.errors import AlreadyExists, ApiError, Call, Conflict, Forbidden, Invalid, ServerError
from slurm_operator.kube.kinds import CONFIG_MAPS
from slurm_operator.kube.model import ChildMeta, OwnerReference
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.execute import Failure, PlanError
from slurm_operator.runtime.plan import Done, Plan, Urgency
from slurm_operator.runtime.reconcile import Reconciler, Refusals, refusal

CALL = Call.on(CONFIG_MAPS, "apply", "slurm", "a")
KEY = ("slurm", "a")


def error(kind: type[ApiError]) -> ApiError:
    return kind(CALL, "no")


@dataclass
class Try:
    """An action that ends as it is told."""

    outcomes: list[Exception | None]
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return "try"

    def describe(self) -> dict[str, object]:
        return {}

    async def run(self, hands: None) -> Done:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return Done()


@dataclass
class Loop:
    outcomes: list[Exception | None]
    exists: bool = True
    told: list[Refusals] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reconcile: Reconciler[str, None] = Reconciler(self._observe, self._decide, None)

    def _observe(self, key: Key, refusals: Refusals) -> str | None:
        self.told.append(refusals)
        return "seen" if self.exists else None

    def _decide(self, seen: str) -> Plan[None]:
        return Plan((Try(self.outcomes),), after=60.0)


async def test_a_refusal_is_told_and_taken_back() -> None:
    """Once what was refused works, the object is looked at again at once: nothing else would wake it."""
    loop = Loop([error(Forbidden), None, None])
    with pytest.raises(PlanError):
        await loop.reconcile(KEY)
    assert (await loop.reconcile(KEY)).after == 0.0
    assert (await loop.reconcile(KEY)).after == 60.0
    assert [[found.reason for found in told] for told in loop.told] == [[], ["Forbidden"], []]


async def test_what_passes_by_itself_is_told_only_the_second_time() -> None:
    """A conflict is no news."""
    loop = Loop([error(Conflict), error(ServerError), error(Conflict), None])
    for _ in range(3):
        with pytest.raises(PlanError):
            await loop.reconcile(KEY)
    await loop.reconcile(KEY)
    assert [len(told) for told in loop.told] == [0, 0, 1, 1]


async def test_objects_do_not_share_their_refusals_and_one_that_is_gone_forgets() -> None:
    loop = Loop([error(Forbidden), None])
    with pytest.raises(PlanError):
        await loop.reconcile(KEY)
    await loop.reconcile(("slurm", "b"))
    loop.exists = False
    assert (await loop.reconcile(KEY)).after is None
    await loop.reconcile(KEY)
    assert [len(told) for told in loop.told] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("why", "reason", "words"),
    [
        (NotOurs("Service", ChildMeta(name="a", namespace="slurm")), "NameTaken", "Service slurm/a was not made by us"),
        (
            NotOurs(
                "Service",
                ChildMeta(
                    name="a",
                    namespace="slurm",
                    owner_references=(OwnerReference(kind="Release", name="x", controller=True),),
                ),
            ),
            "NameTaken",
            "is controlled by Release 'x'; rename or delete it",
        ),
        (error(AlreadyExists), "NameTaken", "configmaps 'a'"),
        (error(Forbidden), "Forbidden", "configmaps 'a'"),
        (error(Invalid), "Invalid", "configmaps 'a'"),
        (UserError("so", "do that"), "Refused", "so; do that"),
        (TimeoutError("late"), "Refused", "try: late"),
    ],
)
def test_a_failure_in_the_words_of_a_condition(why: Exception, reason: str, words: str) -> None:
    found = refusal(Failure(Try([]), why))
    assert found.reason == reason
    assert words in found.message
