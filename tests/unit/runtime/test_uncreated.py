"""Why StatefulSets and Deployments do not create their pods."""

import msgspec
import pytest

from slurm_operator.api import Controller
from slurm_operator.api.common import Condition as Reported
from slurm_operator.api.controller import ControllerStatus
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import (
    Deployment,
    StatefulSet,
    StatefulSetSpec,
    StatefulSetStatus,
    WorkloadStatus,
)
from slurm_operator.kube.model import ChildMeta, Condition
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.runtime.uncreated import FORGET_SECONDS, RECENT_SECONDS, Refusals, uncreated, unheard
from tests.fakes.apiserver import FakeApiServer

REPORTED = Controller(
    status=ControllerStatus(
        conditions=(Reported(type="Degraded", status="True", reason="FailedCreate", message="may not create"),)
    )
)
META = ChildMeta(name="ctl", namespace="slurm", uid="uid-ctl", generation=1)


def stateful_set(replicas: int) -> StatefulSet:
    status = StatefulSetStatus(observed_generation=1, replicas=replicas)
    return StatefulSet(metadata=META, spec=StatefulSetSpec(replicas=1), status=status)


def deployment(*conditions: Condition) -> Deployment:
    return Deployment(metadata=META, status=WorkloadStatus(observed_generation=1, conditions=conditions))


def failure(status: str, message: str) -> Condition:
    return Condition(type="ReplicaFailure", status=status, reason="FailedCreate", message=message)


@pytest.mark.parametrize(
    ("workload", "refusal", "words"),
    [
        (None, "", ()),
        (deployment(), "", ()),
        (deployment(failure("False", "was so")), "", ()),
        (
            deployment(failure("True", 'pods "rest-1" is forbidden: exceeded quota: small')),
            "",
            ("Deployment slurm/ctl may not create its pods", "exceeded quota: small", "raise the ResourceQuota"),
        ),
        (stateful_set(0), "", ()),
        (stateful_set(1), "no longer so", ()),
        (
            stateful_set(0),
            'admission webhook "policy" denied the request',
            ("StatefulSet slurm/ctl may not create its pods", "rules of the webhook"),
        ),
        (stateful_set(0), "something else", ("something else", "change template.spec")),
    ],
)
def test_the_cause_and_the_cure_are_named(
    workload: StatefulSet | Deployment | None, refusal: str, words: tuple[str, ...]
) -> None:
    found = uncreated(workload, refusal)
    assert (found is not None) == bool(words)
    assert found is None or all(word in found.message for word in words)


async def test_the_last_event_of_a_stateful_set_without_pods_counts() -> None:
    clock = SystemClock()
    refusals = Refusals(clock)

    def event(name: str, uid: str, note: str, age: float, reason: str = "FailedCreate") -> dict[str, object]:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "regarding": {"kind": "StatefulSet", "name": "ctl", "uid": uid},
            "reason": reason,
            "note": note,
            "eventTime": None,
            "deprecatedLastTimestamp": rfc3339(clock.now() - age),
        }

    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        kind = server.cluster.kind("Event", "events.k8s.io/v1")

        async def words() -> str:
            await refusals.look(client, "default", "uid-ctl")
            return refusals.words(stateful_set(0))

        assert refusals.missing_for(stateful_set(0)) is not None
        assert unheard(REPORTED, stateful_set(0), refusals) == Trouble("FailedCreate", "may not create")
        assert unheard(Controller(), stateful_set(0), refusals) is None
        assert unheard(REPORTED, stateful_set(1), refusals) is None
        assert await words() == ""
        assert unheard(REPORTED, stateful_set(0), refusals) is None, "the events were read"
        server.cluster.create(kind, event("a", "uid-ctl", "old", RECENT_SECONDS + 5))
        assert await words() == "", "it was created since"
        server.cluster.create(kind, event("b", "uid-ctl", "violates PodSecurity", 5))
        server.cluster.create(kind, event("c", "uid-ctl", "exceeded quota", 60))
        server.cluster.create(kind, event("d", "uid-of-another", "another", 1))
        server.cluster.create(kind, event("e", "uid-ctl", "made pod", 1, "SuccessfulCreate"))
        assert await words() == "violates PodSecurity"
        assert refusals.missing_for(stateful_set(1)) is None
        assert refusals.words(stateful_set(0)) == "", "it has its pods"


def test_what_is_long_gone_is_forgotten() -> None:
    """A StatefulSet that goes with its owner is never seen with its pods again."""
    now = 0.0

    class Passing(SystemClock):
        def monotonic(self) -> float:
            return now

    refusals = Refusals(Passing())
    for number in range(100):
        meta = ChildMeta(name="ctl", namespace="slurm", uid=f"uid-{number}", generation=1)
        short = msgspec.structs.replace(stateful_set(0), metadata=meta)
        assert refusals.missing_for(short) == 0.0
        now += FORGET_SECONDS / 10
        assert refusals.missing_for(short) == pytest.approx(FORGET_SECONDS / 10)
    assert refusals.remembered < 20
