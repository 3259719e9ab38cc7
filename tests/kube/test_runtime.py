"""A whole controller process on a real API server: quiet at rest, one leader, and only where it may."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig, load
from slurm_operator.kube.errors import Forbidden
from slurm_operator.kube.kinds import CONFIG_MAPS, LEASES, NAMESPACES, NODES
from slurm_operator.kube.resource import version_of
from tests.fakes.proxy import Proxy
from tests.kube.audit import Audit
from tests.kube.follower import until
from tests.kube.mirror import BRISK, RULES, running, source
from tests.kube.rbac import allow, allow_everywhere

QUIET_SECONDS = 20.0


@pytest.fixture
async def admin(api_server: ApiServer) -> AsyncIterator[Client]:
    async with Client(load(str(api_server.kubeconfig))) as client:
        yield client


@dataclass
class Operator:
    """A user of its own for each test, so that the audit log can be counted."""

    config: KubeConfig
    audit: Audit


@pytest.fixture
def operator(api_server: ApiServer, namespace: str) -> Operator:
    user = f"operator-{namespace}"
    return Operator(load(str(api_server.kubeconfig_for(user, user))), Audit(api_server.audit_log, user))


async def test_silent_at_rest_and_after_a_restart(operator: Operator, admin: Client, namespace: str) -> None:
    """At rest nothing but watches and the lease; the first pass after a restart finds everything in order."""
    await allow_everywhere(admin, operator.audit.user, RULES)
    for number in range(20):
        await admin.create(CONFIG_MAPS, source(f"m{number}", namespace))
    async with running(operator.config, "one", namespace) as (mirror, _):
        await until(lambda: len(mirror.copies()) == 20)
        # A change is seen before the server has logged the request that made it.
        await until(lambda: sum(entry.resource == "configmaps" for entry in operator.audit.writes()) == 20)
        operator.audit.mark()
        await asyncio.sleep(QUIET_SECONDS)
        requests = operator.audit.requests()
    others = [entry for entry in requests if entry.verb != "watch" and entry.resource != "leases"]
    assert others == []
    renewals = [entry for entry in requests if entry.resource == "leases"]
    assert 0 < len(renewals) <= QUIET_SECONDS / BRISK.retry_seconds + 1

    operator.audit.mark()
    async with running(operator.config, "two", namespace) as (mirror, _):
        await until(lambda: len({key for key in mirror.reconciled if key[0] == namespace}) == 20)
        await until(lambda: not mirror.queue.in_hand())
        await asyncio.sleep(1.0)
        assert [entry for entry in operator.audit.writes() if entry.resource != "leases"] == []


async def test_changes_by_others_are_followed_and_repaired(operator: Operator, admin: Client, namespace: str) -> None:
    await allow_everywhere(admin, operator.audit.user, RULES)
    async with running(operator.config, "one", namespace) as (mirror, _):
        await admin.create(CONFIG_MAPS, source("a", namespace))
        await until(lambda: mirror.copies() == {"a-copy": "1"})
        await admin.patch(CONFIG_MAPS, "a", {"data": {"v": "2"}}, namespace)
        await until(lambda: mirror.copies() == {"a-copy": "2"})
        tampered = await admin.patch(CONFIG_MAPS, "a-copy", {"data": {"v": "tampered"}}, namespace)
        await until(lambda: mirror.version("a-copy") > version_of(tampered))
        assert mirror.copies() == {"a-copy": "2"}
        await admin.patch(CONFIG_MAPS, "a-copy", {"metadata": {"labels": {"mine": "kept"}}}, namespace)
        await admin.patch(CONFIG_MAPS, "a", {"data": {"v": "3"}}, namespace)
        await until(lambda: mirror.copies() == {"a-copy": "3"})
    raw = await admin.get_raw(CONFIG_MAPS, "a-copy", namespace)
    assert raw["metadata"]["labels"] == {"mirror": "copy", "mine": "kept"}


async def test_namespaces_can_be_all_it_sees(operator: Operator, admin: Client, namespace: str) -> None:
    """scenario 19: with a list of namespaces, Roles suffice; elsewhere is ignored, and Nodes are still seen."""
    second, foreign = f"{namespace}-2", f"{namespace}-foreign"
    for name in (second, foreign):
        await admin.create(NAMESPACES, {"metadata": {"name": name}})
    for name in (namespace, second):
        await allow(admin, operator.audit.user, name, RULES)
    await allow_everywhere(admin, operator.audit.user, {"nodes": ["list", "watch"]})
    await admin.create(NODES, {"metadata": {"name": f"node-{namespace}"}})
    for place in (namespace, second, foreign):
        await admin.create(CONFIG_MAPS, source("a", place))

    async with running(operator.config, "one", namespace, namespaces=[namespace, second], nodes=True) as (mirror, _):
        await until(lambda: set(mirror.reconciled) == {(namespace, "a"), (second, "a")})
        await until(lambda: len(mirror.copies()) == 1 and mirror.maps.get(second, "a-copy"))
        assert mirror.nodes is not None
        assert f"node-{namespace}" in {node.metadata.name for node in mirror.nodes}
        assert mirror.maps.get(foreign, "a") is None
        requests = operator.audit.requests()
        assert {401, 403}.isdisjoint(entry.response_status.code for entry in requests)
        assert all(entry.object_ref.namespace in (namespace, second) for entry in requests if entry.resource != "nodes")
    await admin.delete(NODES, f"node-{namespace}")


async def test_a_missing_permission_ends_the_start(operator: Operator, admin: Client, namespace: str) -> None:
    async with running(operator.config, "one", namespace) as (_, task):
        with pytest.raises(Forbidden) as refusal:
            async with asyncio.timeout(20):
                await task
    assert "cannot" in refusal.value.message
    assert "configmaps" in refusal.value.message
    assert "grant" in refusal.value.hint


async def test_one_of_two_leads_and_hands_over(operator: Operator, admin: Client, namespace: str) -> None:
    """scenario 20: only the lease holder acts; when it stops the other takes over without waiting for expiry."""
    await allow_everywhere(admin, operator.audit.user, RULES)
    async with running(operator.config, "first", namespace) as (first, _):
        await until(first.elector.leading.is_set)
        async with running(operator.config, "second", namespace) as (second, _):
            await admin.create(CONFIG_MAPS, source("a", namespace))
            await until(lambda: first.copies() == second.copies() == {"a-copy": "1"})
            assert second.reconciled == []
            assert not second.elector.leading.is_set()
            started = asyncio.get_running_loop().time()
            first.manager.stop()
            await until(second.elector.leading.is_set)
            assert asyncio.get_running_loop().time() - started < BRISK.lease_seconds
            await admin.patch(CONFIG_MAPS, "a", {"data": {"v": "2"}}, namespace)
            await until(lambda: second.copies() == {"a-copy": "2"})
    transitions = (await admin.get(LEASES, "mirror", namespace)).spec.lease_transitions
    assert transitions >= 1


async def test_a_leader_cut_off_ends_before_the_next_begins(operator: Operator, admin: Client, namespace: str) -> None:
    """scenario 20: who cannot renew ends by itself; only after that, when the lease has run out, another leads."""
    await allow_everywhere(admin, operator.audit.user, RULES)
    await admin.create(CONFIG_MAPS, source("a", namespace))
    async with Proxy(operator.config.server) as proxy:
        behind = replace(operator.config, server=proxy.url)
        async with running(behind, "first", namespace) as (first, task):
            await until(lambda: first.copies() == {"a-copy": "1"})
            async with running(operator.config, "second", namespace) as (second, _):
                await until(lambda: second.elector.holder == "first")
                proxy.block()
                await until(second.elector.leading.is_set)
                assert not first.elector.leading.is_set()
                await until(lambda: (namespace, "a") in second.reconciled)
            async with asyncio.timeout(20):
                assert await task == 1


async def test_losing_the_lease_ends_the_process(operator: Operator, admin: Client, namespace: str) -> None:
    await allow_everywhere(admin, operator.audit.user, RULES)
    async with running(operator.config, "one", namespace) as (mirror, task):
        await until(mirror.elector.leading.is_set)
        await admin.patch(LEASES, "mirror", {"spec": {"holderIdentity": "usurper"}}, namespace)
        async with asyncio.timeout(20):
            assert await task == 1
