"""Single decisions that random histories (`tests/simulation/worlds`) found to be wrong."""

import pytest

from slurm_operator.api import names
from slurm_operator.nodeset.slurm_actions import Drain, Undrain
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus
from tests.unit.nodeset.make import job_list, known, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import DRAINED, OURS, condition, deleted, nodes_of, planned, pods, records, told


def test_a_worker_that_an_administrator_took_down_leaves_also_if_it_is_cordoned() -> None:
    """Its reason stays; without a drain it would be waited for for ever, in the budget of an update."""
    wanted = nodeset(0, status=told("gpu-0"))
    cordoned = pod("gpu-0", revision=revision(wanted), annotations={names.ANNOTATION_POD_CORDON: "true"})
    of = world(wanted, cordoned, slurm=known(record("gpu-0", "DOWN", reason="replacing the fan")))
    assert [(drain.nodes, drain.reason) for drain in planned(of, Drain)] == [(("gpu-0",), "")]
    stays = world(nodeset(1), cordoned, slurm=known(record("gpu-0", "DOWN", reason="replacing the fan")))
    assert planned(stays, Drain) == []


def test_a_worker_that_is_named_and_still_drained_counts_as_away() -> None:
    """It was drained for the update before a job named it, and does not serve before it is undrained."""
    of = world(
        nodeset(2, status=told("gpu-0", "update"), updateStrategy={"rollingUpdate": {"maxUnavailable": 1}}),
        *pods(0, 1, rev="old"),
        slurm=known(*records(0, state=DRAINED, reason=OURS), *records(1)),
        jobs=job_list(naming={"gpu-0": (12,)}),
    )
    assert nodes_of(of, Undrain) == ["gpu-0"]
    assert nodes_of(of, Drain) == []


def test_the_order_of_the_pods_does_not_change_what_is_said_of_named_workers() -> None:
    """A new process sees them in another order, and must not write its report again for that."""
    wanted, named = nodeset(2), job_list(reserved={"gpu-0": ("exam",), "gpu-1": ("party",)})
    one, other = pods(0, 1, rev="old")
    first, second = (
        world(wanted, *seen, slurm=known(*records(0, 1)), jobs=named) for seen in ((one, other), (other, one))
    )
    assert condition(first, "Progressing")["message"] == condition(second, "Progressing")["message"]


def test_a_worker_of_the_revision_that_is_wanted_again_counts_as_away_while_it_is_drained() -> None:
    """It was drained for an update that was taken back."""
    wanted = nodeset(2, status=told("gpu-0", "update"), updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    of = world(
        wanted,
        *pods(0, rev=revision(wanted)),
        *pods(1, rev="old"),
        slurm=known(*records(0, state=DRAINED, reason=OURS), *records(1)),
    )
    assert nodes_of(of, Undrain) == ["gpu-0"]
    assert nodes_of(of, Drain) == []


@pytest.mark.parametrize("rev", ["of the spec", "earlier and named"])
def test_a_drain_of_ours_that_could_not_be_lifted_counts_as_away(rev: str) -> None:
    """The status has forgotten it already, but the undrain failed: no other worker is drained before it serves."""
    wanted = nodeset(2, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    of = world(
        wanted,
        *pods(0, rev=revision(wanted) if rev == "of the spec" else "old"),
        *pods(1, rev="old"),
        slurm=known(*records(0, state=DRAINED, reason=OURS), *records(1)),
        jobs=job_list(naming={"gpu-0": (12,)}),
    )
    assert nodes_of(of, Undrain) == ["gpu-0"]
    assert nodes_of(of, Drain) == []


def test_an_outdated_worker_with_a_drain_of_ours_is_replaced_before_others() -> None:
    """The drain of another would be one more worker that is away, until the first is undrained."""
    wanted = nodeset(2, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    cheap = pods(1, rev="old", annotations={names.ANNOTATION_POD_DELETION_COST: "-1"})
    slurm = known(*records(0, state=DRAINED, reason=OURS), *records(1))
    of = world(wanted, *pods(0, rev="old"), *cheap, slurm=slurm)
    assert nodes_of(of, Undrain) == []
    assert nodes_of(of, Drain) == ["gpu-0"]


def test_a_worker_of_the_other_mode_that_lost_its_record_to_us_goes_at_once() -> None:
    """Its record was deleted so that it may go: it is no worker that an update could cost."""
    limit = {"rollingUpdate": {"maxUnavailable": 1}}
    wanted = nodeset(status=told("gpu-0", "mode"), scalingMode="DaemonSet", updateStrategy=limit)
    daemons = [
        pod(f"gpu-{name}", node=name, ip=ip, revision=revision(wanted), labels=daemon_labels(name))
        for name, ip in (("a", "10.0.0.8"), ("b", "10.0.0.9"))
    ]
    broken = [
        record(name, "DOWN", reason="replacing the fan", ip=ip) for name, ip in (("a", "10.0.0.8"), ("b", "10.0.0.9"))
    ]
    of = world(wanted, pod("gpu-0", node="a"), *daemons, slurm=known(*broken))
    assert deleted(of) == ["gpu-0"]


def daemon_labels(node: str) -> dict[str, str]:
    return {names.LABEL_SCALING_MODE: "DaemonSet", names.LABEL_POD_HOSTNAME: node}


def test_a_worker_without_a_record_stays_written_down_until_its_pod_is_gone() -> None:
    """A registration that was under way makes its record again, which a new process would take for a stranger's."""
    wanted = nodeset(0, status=told("gpu-0"))
    ending = pod("gpu-0", revision=revision(wanted), deleting=True)
    assert written(world(wanted, ending, slurm=known())) == ["gpu-0"]
    assert written(world(wanted, slurm=known())) == []
    again = nodeset(1, status=told("gpu-0"))
    assert written(world(again, ending, slurm=known())) == []


def written(of: World) -> list[str]:
    """Return the nodes that the status names as removed once the plan is carried out."""
    return [drain["nodes"] for action in planned(of, ApplyStatus) for drain in action.manifest["status"]["drains"]]
