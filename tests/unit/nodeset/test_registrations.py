"""Decisions about records that slurmd's registrations make again, or are awaited for."""

import pytest

from slurm_operator.nodeset.slurm_actions import Drain, Removal, SlurmAction
from slurm_operator.runtime.actions import Delete
from tests.unit.nodeset.make import known, nodeset, revision, world
from tests.unit.nodeset.plans import nodes_of, planned, pods, records, told


@pytest.mark.parametrize("state", [("IDLE", "NOT_RESPONDING"), ("MIXED", "NOT_RESPONDING")])
def test_a_worker_that_has_not_registered_since_its_undrain_is_left_alone(state: tuple[str, ...]) -> None:
    wanted = nodeset(2)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0, 1, state=state)))
    assert [*planned(of, SlurmAction), *planned(of, Removal), *planned(of, Delete)] == []


def test_a_record_that_was_deleted_and_made_again_is_drained_again() -> None:
    """Slurm may start jobs on it, so that neither the pod nor the record may go before."""
    wanted = nodeset(1, status=told("gpu-1"))
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0, 1)))
    assert nodes_of(of, Drain) == ["gpu-1"]
    assert [*planned(of, Removal), *planned(of, Delete)] == []
