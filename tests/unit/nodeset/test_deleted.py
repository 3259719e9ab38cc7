"""A NodeSet that is being deleted makes nothing new."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.kind import UserMeta
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import NAMESPACES, PODS
from slurm_operator.nodeset.hands import Hands, Memory
from slurm_operator.nodeset.slurm_actions import SlurmAction
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Apply, Create, Kube
from slurm_operator.slurm.known import Unknown
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.unit.nodeset.make import NOW, known, nodeset, pod, world
from tests.unit.nodeset.plans import planned, pods, records

SSH = {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
CLAIM = {"metadata": {"name": "scratch"}, "spec": {}}
FULL: dict[str, Any] = {"ssh": SSH, "volumeClaimTemplates": [CLAIM]}


def children(of: World) -> set[str]:
    """Return the kinds of what would be created."""
    return {action.resource.kind for action in (*planned(of, Create), *planned(of, Apply))}


def test_a_nodeset_makes_its_children() -> None:
    """Otherwise the next test could not fail."""
    of = world(nodeset(2, **FULL))
    assert children(of) == {"Pod", "PersistentVolumeClaim", "ControllerRevision", "ConfigMap"}


def test_no_worker_is_created_before_the_finalizer_is_there() -> None:
    """A NodeSet that is deleted in its first second would leave them behind: the budget owns them too."""
    assert "Pod" not in children(world(nodeset(2, held=False, **FULL)))


async def test_a_nodeset_that_is_deleted_during_a_pass_makes_no_further_pods() -> None:
    wanted = nodeset(2, deleting=True)
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "slurm"}})
        kube = Kube(client, Recorder(client, "test"), {}, manager="test")
        first, second = (action for action in planned(world(nodeset(2)), Create) if action.resource is PODS)
        hands = Hands(kube, None, Memory(), FakeClock(), wanted.key)
        await first.run(hands)
        kube.saw(NODESETS, msgspec.structs.replace(wanted, metadata=at_version(wanted.metadata)))
        assert not (await second.run(hands)).wrote
        assert len(server.log("create", "pods")) == 1


def at_version(meta: UserMeta) -> UserMeta:
    return msgspec.structs.replace(meta, resource_version="7")


@given(
    there=st.sets(st.integers(0, 3)),
    ended=st.sets(st.integers(4, 6)),
    state=st.sampled_from([("IDLE",), ("MIXED",), ("IDLE", "DRAIN"), ("DOWN",)]),
    mode=st.sampled_from(["StatefulSet", "DaemonSet"]),
    answers=st.booleans(),
)
def test_a_nodeset_that_is_deleted_makes_no_children(
    there: set[int], ended: set[int], state: tuple[str, ...], mode: str, answers: bool
) -> None:
    """Workers are missing, unplaced, have ended, are old or in the other mode, and Slurm may not answer."""
    wanted = nodeset(5, deleting=True, scalingMode=mode, **FULL)
    gone = [pod(f"gpu-{number}", phase="Failed", ip="", revision="old") for number in ended]
    unplaced = pod("gpu-7", node="", phase="Pending", ready=None, ip="", revision="old")
    slurm = known(*records(*there, state=state)) if answers else Unknown(NOW, "no answer")
    assert children(world(wanted, *pods(*there, rev="old"), *gone, unplaced, slurm=slurm)) == set()


@pytest.mark.parametrize("mode", ["StatefulSet", "DaemonSet"])
def test_a_template_that_cannot_be_built_does_not_hold_up_a_deletion(mode: str) -> None:
    wanted = nodeset(2, deleting=True, scalingMode=mode, template={"spec": {"containers": [{"name": "exporter"}]}})
    of = world(wanted, *pods(0, 1, rev="old"), slurm=known(*records(0, 1)))
    assert [action.nodes for action in planned(of, SlurmAction)] == [("gpu-0", "gpu-1")]
