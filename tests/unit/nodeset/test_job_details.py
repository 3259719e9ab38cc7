"""Details of jobs are read seldom, and never hold a pass up for long."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.nodeset.job_details import MAX_AGE_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS, JobDetails
from slurm_operator.slurm.client import SlurmClient
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock, run_virtual
from tests.fakes.slurmrestd import FakeSlurm, FakeTransport

NODESET = ("slurm", "gpu")


def in_virtual_time(
    test: Callable[[FakeClock, FakeSlurm, JobDetails, SlurmClient], Awaitable[None]],
) -> None:
    async def main() -> None:
        clock = FakeClock()
        slurm = FakeSlurm(clock.now)
        slurm.add_nodes("gpu-0")
        slurm.start_job(7, "gpu-0")
        async with SlurmClient("http://slurm", slurm.key, clock, transport=FakeTransport(slurm)) as client:
            await test(clock, slurm, JobDetails(clock), client)

    work: Coroutine[Any, Any, None] = main()
    run_virtual(work)


def test_a_job_is_read_once_and_again_when_its_details_are_old() -> None:
    async def test(clock: FakeClock, slurm: FakeSlurm, details: JobDetails, client: SlurmClient) -> None:
        for _ in range(3):
            assert (await details.read(NODESET, client, [7]))[7].user_name == "alice"
        assert slurm.count("GET job/") == 1
        await clock.sleep(MAX_AGE_SECONDS + 1)
        await details.read(NODESET, client, [7])
        assert slurm.count("GET job/") == 2

    in_virtual_time(test)


def test_a_slurmctld_that_does_not_answer_holds_one_pass_up_for_two_seconds() -> None:
    async def test(clock: FakeClock, slurm: FakeSlurm, details: JobDetails, client: SlurmClient) -> None:
        began = clock.monotonic()
        with slurm.failing(fake.hang()):
            assert await details.read(NODESET, client, [7]) == {}
            assert clock.monotonic() - began == pytest.approx(PATIENCE_SECONDS, abs=0.5)
            before = clock.monotonic()
            assert await details.read(NODESET, client, [7]) == {}
            assert clock.monotonic() == before
        await clock.sleep(RETRY_SECONDS + 1)
        assert (await details.read(NODESET, client, [7]))[7].job_id == 7

    in_virtual_time(test)


def test_what_was_read_stays_when_it_cannot_be_read_again() -> None:
    async def test(clock: FakeClock, slurm: FakeSlurm, details: JobDetails, client: SlurmClient) -> None:
        await details.read(NODESET, client, [7])
        await clock.sleep(MAX_AGE_SECONDS + 1)
        with slurm.failing(replace(fake.refuse(500), only=lambda call: call.startswith("GET job/"))):
            assert (await details.read(NODESET, client, [7]))[7].user_name == "alice"

    in_virtual_time(test)


def test_a_job_that_has_ended_is_no_failure_and_jobs_that_are_not_asked_for_are_dropped() -> None:
    async def test(clock: FakeClock, slurm: FakeSlurm, details: JobDetails, client: SlurmClient) -> None:
        assert list(await details.read(NODESET, client, [7, 8])) == [7]
        slurm.start_job(9, "gpu-0")
        assert list(await details.read(NODESET, client, [9])) == [9]
        await details.read(NODESET, client, [7])
        assert slurm.calls.count("GET job/7") == 2

    in_virtual_time(test)
