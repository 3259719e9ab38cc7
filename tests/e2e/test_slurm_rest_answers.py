"""Every kind of answer of a real slurmrestd is the value or the typed error that we say it is."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.slurm import errors, rest
from slurm_operator.slurm.client import Listing, NotChanged, SlurmClient
from slurm_operator.slurm.model import NodeUpdate, Number, ReservationRequest
from slurm_operator.slurm.transport import HttpTransport
from tests.e2e.slurm_rest import Clock, all_jobs, all_nodes, cancel, client_of, run_external, submit, until, until_state

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[SlurmLab]:
    async with SlurmLab(nodes=9, node_conf="CPUs=4 RealMemory=1000 Features=a") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: SlurmLab) -> AsyncIterator[SlurmClient]:
    async with client_of(lab) as connected:
        yield connected


async def raw(lab: SlurmLab, path: str, **headers: str) -> tuple[int, bytes]:
    transport = HttpTransport()
    async with transport.request("GET", f"{lab.url}{path}", headers, None) as response:
        answer = response.status, b"".join([chunk async for chunk in response.chunks()])
    await transport.close()
    return answer


def refused(error: errors.SlurmError) -> tuple[type[errors.SlurmError], int, int]:
    return type(error), error.status, error.number


# --- tokens -------------------------------------------------------------------------------------------------------


async def test_no_token(lab: SlurmLab) -> None:
    assert (await raw(lab, "/slurm/v0.0.45/nodes/"))[0] == 401


async def test_expired_token(lab: SlurmLab) -> None:
    class Yesterday(Clock):
        @staticmethod
        def now() -> float:
            return time.time() - 86400

    async with client_of(lab, clock=Yesterday()) as late:
        with pytest.raises(errors.AuthFailed) as caught:
            await all_nodes(late)
    assert refused(caught.value) == (errors.AuthFailed, 511, 1007)


async def test_wrong_key(lab: SlurmLab) -> None:
    async with SlurmClient(lab.url, b"x" * 32, Clock()) as stranger:
        with pytest.raises(errors.AuthFailed) as caught:
            await all_nodes(stranger)
        assert refused(caught.value) == (errors.AuthFailed, 511, 1007)
        stranger.set_key(lab.jwt_key)
        assert len(await all_nodes(stranger)) == 9


async def test_token_without_an_end(lab: SlurmLab) -> None:
    def word(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    message = (
        f"{word(json.dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{word(json.dumps({'sun': 'slurm'}).encode())}"
    )
    signature = word(hmac.new(lab.jwt_key, message.encode(), hashlib.sha256).digest())
    status, _ = await raw(lab, "/slurm/v0.0.45/nodes/", **{"X-SLURM-USER-TOKEN": f"{message}.{signature}"})
    assert status == 511


async def test_not_an_operator(lab: SlurmLab) -> None:
    async with client_of(lab, user="nobody") as nobody:
        assert len(await all_nodes(nobody)) == 9
        with pytest.raises(errors.NotPermitted) as caught:
            await nobody.update_nodes(["n-1"], NodeUpdate(comment="mine"))
    assert refused(caught.value) == (errors.NotPermitted, 422, 2010)


async def test_slurms_own_token_and_ours_are_alike(lab: SlurmLab) -> None:
    status, _ = await raw(lab, "/slurm/v0.0.45/ping/", **{"X-SLURM-USER-TOKEN": await lab.token("slurm", lifetime=60)})
    assert status == 200


# --- versions and paths -------------------------------------------------------------------------------------------


async def test_unknown_version_is_plain_text(lab: SlurmLab) -> None:
    status, body = await raw(lab, "/slurm/v0.0.41/nodes/", **{"X-SLURM-USER-TOKEN": await lab.token()})
    assert status == 404
    assert not body.startswith(b"{")


async def test_speaks_the_newest_version(client: SlurmClient) -> None:
    """scenario 167"""
    await client.ping()
    assert client.version == "v0.0.45"


async def test_no_common_version(client: SlurmClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """scenario 167"""
    monkeypatch.setattr(rest, "VERSIONS", ("v0.0.41", "v0.0.40"))
    with pytest.raises(errors.Unsupported, match="none of the data parsers"):
        await client.node("n-1")


@pytest.mark.parametrize("version", rest.VERSIONS)
async def test_every_version_reads_and_writes_alike(
    lab: SlurmLab, client: SlurmClient, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scenario 167"""
    job_id = await run_external(client, "n-8", tasks=2)
    monkeypatch.setattr(rest, "VERSIONS", (version,))
    client.set_url(lab.url)
    node = await until_state(client, "n-8", "MIXED")
    assert node == (await all_nodes(client))["n-8"]
    assert (node.state[0], node.address, node.cpus, node.alloc_cpus) == ("MIXED", lab.box.address, 4, 2)
    assert node.features == node.active_features == ("a",)
    job = (await all_jobs(client))[job_id]
    assert (job.nodes, job.time_limit.value) == ("n-8", 600)
    await client.update_nodes(["n-8", "n-9"], NodeUpdate(comment=version))
    assert (await client.node("n-9")).comment == version
    assert (await client.diag()).counting_since > 0
    assert (await client.ping())[0].up
    assert client.version == version
    with pytest.raises(errors.NotFound):
        await client.node("none")
    await cancel(client, job_id)


async def test_accounting_that_is_not_configured(client: SlurmClient) -> None:
    with pytest.raises(errors.Unsupported):
        await client.accounting_clusters()


# --- nodes --------------------------------------------------------------------------------------------------------


async def test_unknown_node(client: SlurmClient) -> None:
    """scenario 163"""
    with pytest.raises(errors.NotFound) as caught:
        await client.node("none")
    assert refused(caught.value) == (errors.NotFound, 200, 0)


async def test_deleting_an_unknown_node(client: SlurmClient) -> None:
    with pytest.raises(errors.NotFound) as caught:
        await client.delete_nodes(["none"])
    assert refused(caught.value) == (errors.NotFound, 422, 2018)


async def test_deleting_a_busy_node(client: SlurmClient) -> None:
    job_id = await run_external(client, "n-7", tasks=1)
    with pytest.raises(errors.Busy) as caught:
        await client.delete_nodes(["n-7"])
    assert refused(caught.value) == (errors.Busy, 422, 2016)
    await cancel(client, job_id)


async def test_updating_an_unknown_node(client: SlurmClient) -> None:
    with pytest.raises(errors.NotFound):
        await client.update_nodes(["none"], NodeUpdate(comment="c"))


async def test_bulk_update_with_unknown_names_changes_the_known(client: SlurmClient) -> None:
    with pytest.raises(errors.HalfApplied) as caught:
        await client.update_nodes(["n-1", "none"], NodeUpdate(comment="half"))
    assert refused(caught.value) == (errors.HalfApplied, 422, 2018)
    assert (await client.node("n-1")).comment == "half"


async def test_bulk_drain_and_undrain(client: SlurmClient) -> None:
    names = [f"n-{number}" for number in range(1, 6)]
    await client.update_nodes(names, NodeUpdate(state=("DRAIN",), reason="slurm-operator: test"))
    nodes = await all_nodes(client)
    assert all("DRAIN" in nodes[name].state and nodes[name].reason == "slurm-operator: test" for name in names)
    assert "DRAIN" not in nodes["n-6"].state
    await client.update_nodes(names, NodeUpdate(state=("UNDRAIN",), reason=""))
    nodes = await all_nodes(client)
    assert not any("DRAIN" in node.state for node in nodes.values())


async def test_state_word_that_does_not_exist(client: SlurmClient) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        await client.update_nodes(["n-1"], NodeUpdate(state=("NONSENSE",)))
    assert refused(caught.value) == (errors.InvalidRequest, 500, 9207)


async def test_unknown_topology(client: SlurmClient) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        await client.update_nodes(["n-1"], NodeUpdate(topology_str="none:b1"))
    assert refused(caught.value) == (errors.InvalidRequest, 422, 2178)


async def test_fields_that_we_write(client: SlurmClient) -> None:
    update = NodeUpdate(
        comment="pod=ns/n", extra='{"rack":"r},{1"}', features=("a", "k8s/x"), features_act=("a", "k8s/x")
    )
    await client.update_nodes(["n-2"], update)
    node = await client.node("n-2")
    assert (node.comment, node.extra) == ("pod=ns/n", '{"rack":"r},{1"}')
    assert node.features == node.active_features == ("a", "k8s/x")
    assert (await all_nodes(client))["n-2"] == node
    await client.update_nodes(["n-2"], NodeUpdate(comment="", extra="", features=("a",), features_act=("a",)))
    assert (await client.node("n-2")).comment == ""


async def test_creating_and_deleting_by_hostlist(lab: SlurmLab, client: SlurmClient) -> None:
    await client.create_nodes(f"NodeName=r-[01-12] CPUs=1 State=EXTERNAL NodeAddr={lab.box.address}")
    created = {name for name in await all_nodes(client) if name.startswith("r-")}
    assert created == {f"r-{number:02}" for number in range(1, 13)}
    await client.delete_nodes(created)
    assert not any(name.startswith("r-") for name in await all_nodes(client))


async def test_creating_what_exists(lab: SlurmLab, client: SlurmClient) -> None:
    with pytest.raises(errors.SlurmError) as caught:
        await client.create_nodes(f"NodeName=n-1 CPUs=1 State=EXTERNAL NodeAddr={lab.box.address}")
    assert not caught.value.outage


async def test_deleting_some_unknown_is_half_applied(lab: SlurmLab, client: SlurmClient) -> None:
    await client.create_nodes(f"NodeName=h-1 CPUs=1 State=EXTERNAL NodeAddr={lab.box.address}")
    with pytest.raises(errors.HalfApplied):
        await client.delete_nodes(["h-1", "h-2"])


async def test_nothing_changed(client: SlurmClient) -> None:
    answer = await client.nodes(list[object]().extend)
    assert isinstance(answer, Listing)
    assert isinstance(await client.nodes(list[object]().extend, answer.last_update + 1), NotChanged)


async def test_a_change_in_the_same_second_is_not_missed(client: SlurmClient) -> None:
    answer = await client.nodes(list[object]().extend)
    assert isinstance(answer, Listing)
    await client.update_nodes(["n-3"], NodeUpdate(comment=f"at {time.time()}"))
    assert isinstance(await client.nodes(list[object]().extend, answer.last_update), Listing)


# --- jobs and reservations ----------------------------------------------------------------------------------------


async def test_a_job_that_can_never_run(client: SlurmClient) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        await submit(client, script="#!/bin/sh\ntrue\n", tasks=1, required_nodes=["n-1"])
    assert refused(caught.value) == (errors.InvalidRequest, 422, 2014)


async def test_unknown_job(client: SlurmClient) -> None:
    with pytest.raises(errors.NotFound) as caught:
        await client.job(999_999)
    assert refused(caught.value) == (errors.NotFound, 404, 2017)


async def test_jobs_unchanged(client: SlurmClient) -> None:
    job_id = await run_external(client, "n-6", tasks=1)
    answer = await client.jobs(list[object]().extend)
    assert isinstance(answer, Listing)
    assert isinstance(await client.jobs(list[object]().extend, answer.last_update + 1), NotChanged)
    assert any(state.job_id == str(job_id) and "RUNNING" in state.state for state in await client.job_states())
    await cancel(client, job_id)


async def test_reservations(client: SlurmClient) -> None:
    start = int(time.time()) + 3600
    request = ReservationRequest(
        name="maint",
        node_list=("n-[1-2]",),
        users=("slurm",),
        flags=("MAINT", "IGNORE_JOBS"),
        start_time=Number(set=True, number=start),
        duration=Number(set=True, number=30),
    )
    with pytest.raises(errors.NotFound):
        await client.reservation("maint")
    await client.put_reservation(request)
    found = await client.reservation("maint")
    assert (found.name, found.node_list, found.users) == ("maint", "n-[1-2]", "slurm")
    assert (found.start_time.value, found.end_time.value) == (start, start + 1800)
    assert {"MAINT", "IGNORE_JOBS", "SPEC_NODES"} <= set(found.flags)
    with pytest.raises(errors.NotFound):
        await client.reservation("other")
    await client.delete_reservation("maint")
    with pytest.raises(errors.NotFound):
        await client.delete_reservation("maint")
    assert await client.reservations() == ()


async def test_reservation_in_the_past(client: SlurmClient) -> None:
    past = Number(set=True, number=int(time.time()) - 3600)
    request = ReservationRequest(
        name="past",
        node_list=("n-1",),
        users=("slurm",),
        flags=(),
        start_time=past,
        duration=Number(set=True, number=9),
    )
    with pytest.raises(errors.InvalidRequest) as caught:
        await client.put_reservation(request)
    assert refused(caught.value) == (errors.InvalidRequest, 422, 2054)


async def test_partitions(client: SlurmClient) -> None:
    (partition,) = await client.partitions()
    assert (partition.name, partition.partition.state) == ("all", ("UP",))
    assert partition.nodes.total == 9


# --- the daemons fail ---------------------------------------------------------------------------------------------


async def test_reconfigure_is_a_new_start(client: SlurmClient) -> None:
    before = (await client.diag()).counting_since
    await client.reconfigure()

    async def started_anew() -> bool:
        try:
            return (await client.diag()).counting_since > before
        except (errors.ControllerDown, errors.ControllerBusy):
            return False

    await until(started_anew)


async def test_slurmctld_is_down(lab: SlurmLab, client: SlurmClient) -> None:
    await client.ping()
    await lab.slurmctld.stop()
    try:
        began = time.monotonic()
        assert not (await client.ping())[0].up
        assert time.monotonic() - began < 2
        with pytest.raises(errors.ControllerDown) as caught:
            await client.node("n-1")
        assert refused(caught.value) == (errors.ControllerDown, 502, 1800)
        assert 8 < time.monotonic() - began < 20
    finally:
        await lab.slurmctld.start()
        await lab.ready()


async def test_slurmctld_is_busy(lab: SlurmLab, client: SlurmClient) -> None:
    """Some calls say so, some fail without a reason: an outage in any case."""
    await client.ping()
    lab.slurmctld.hang()
    try:
        with pytest.raises(errors.ControllerBusy) as caught:
            await client.diag()
        assert refused(caught.value) == (errors.ControllerBusy, 504, 5004)
        with pytest.raises(errors.ServerFailed) as failed:
            await client.job_states()
        assert refused(failed.value) == (errors.ServerFailed, 500, -1)
        assert failed.value.outage
    finally:
        lab.slurmctld.resume()
        await lab.ready()


async def test_slurmrestd_is_hung(lab: SlurmLab) -> None:
    """scenario 165"""
    async with client_of(lab, deadline=1.0) as client:
        await client.ping()
        lab.slurmrestd.hang()
        try:
            began = time.monotonic()
            with pytest.raises(errors.DeadlineExceeded):
                await client.node("n-1")
            assert time.monotonic() - began < 2
        finally:
            lab.slurmrestd.resume()
        assert (await client.node("n-1")).name == "n-1"


async def test_slurmrestd_is_dead(lab: SlurmLab, client: SlurmClient) -> None:
    await client.ping()
    await lab.slurmrestd.kill()
    try:
        with pytest.raises(errors.Unreachable):
            await client.node("n-1")
    finally:
        await lab.slurmrestd.start()
        await lab.ready()
    assert (await client.node("n-1")).name == "n-1"
