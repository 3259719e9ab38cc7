"""What counts as known after a write whose answer was lost: it may have taken effect or not."""

from dataclasses import replace
from typing import Any

from slurm_operator.runtime.actions import ApplyStatus
from tests.unit.nodeset.make import known, nodeset, revision, world
from tests.unit.nodeset.plans import DRAINED, OURS, deleted, planned, pods, records, told


def test_a_worker_that_is_wanted_again_is_replaced_if_its_record_was_deleted_without_an_answer() -> None:
    """Found by history `administrators 920214`: the last read still shows the record, the next one does not."""
    wanted = nodeset(1, status=told("gpu-0", "update"))
    workers = pods(0, rev=revision(wanted))
    drained = records(0, state=DRAINED, reason=OURS)
    lost = world(wanted, *workers, slurm=known(*drained, pending=["gpu-0"]))
    assert deleted(lost) == []
    assert written(lost) == ["gpu-0"]
    assert deleted(replace(lost, slurm=known())) == ["gpu-0"]


def test_a_worker_that_is_wanted_again_is_forgotten_once_its_record_is_seen() -> None:
    wanted = nodeset(1, status=told("gpu-0", "update"))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=DRAINED, reason=OURS)))
    assert written(of) == []


def written(of: Any) -> list[str]:
    """Return the nodes that the status names once the plan is carried out."""
    (status,) = [action.manifest["status"] for action in planned(of, ApplyStatus)]
    return [drain["nodes"] for drain in status["drains"]]
