"""References: Secrets and ConfigMaps by name. Their coming and going wakes whoever refers to them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from slurm_operator.api.common import ConfigMapKeySelector, KeyReferences, SecretKeySelector
from slurm_operator.kube.client import Client
from slurm_operator.kube.custom import ACCOUNTINGS
from slurm_operator.kube.kinds import CONFIG_MAPS, PODS, SECRETS
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.actions import ApplyStatus, RecordEvent
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import unread
from slurm_operator.runtime.health import SILENT_SECONDS, no_dead_watch, no_silent_watch
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.references import LOADING, REFUSED, References, Refs
from slurm_operator.runtime.trouble import Trouble
from tests.fakes.apiserver import Disconnect, FakeApiServer, Refuse
from tests.fakes.clock import FakeClock
from tests.unit.desired import examples

KEY = ("default", "slurm")
OWNER = ("Controller", KEY)


def secret(name: str = "keys", **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.fixture
async def references(client: Client, clock: FakeClock) -> AsyncIterator[References]:
    caches = Caches(client, clock=clock)
    found = References(caches)
    running = asyncio.create_task(caches.run())
    yield found
    running.cancel()


@pytest.fixture
def queue(references: References, clock: FakeClock) -> Queue:
    found = Queue("controllers", clock=clock)
    references.wake("Controller", found)
    return found


async def read(references: References, clock: FakeClock, *secrets: str, maps: tuple[str, ...] = ()) -> Refs:
    """What is referred to, once the answers are in."""
    while (refs := references.read(OWNER, "default", secrets=secrets, config_maps=maps)).loading:
        await clock.sleep(LOADING)
    return refs


async def woken(queue: Queue) -> bool:
    try:
        async with asyncio.timeout(1):
            key = await queue.get()
    except TimeoutError:
        return False
    queue.done(key)
    return key == KEY


async def test_nothing_is_missing_before_the_answer_is_in(
    references: References, client: Client, clock: FakeClock
) -> None:
    await client.create(SECRETS, secret(key="MQ=="))
    first = references.read(OWNER, "default", secrets=["keys", ""])
    assert first.loading
    assert first.secret("keys") == {}
    refs = await read(references, clock, "keys", "other")
    assert refs.secret("keys") == {"key": b"1"}
    assert (refs.secret("other"), refs.secrets["other"]) == ({}, None)
    assert references.read(OWNER, "default").loading is False


async def test_coming_changing_and_going_wakes_the_owner(
    references: References, client: Client, clock: FakeClock, queue: Queue
) -> None:
    await read(references, clock, "keys", maps=("files",))
    await client.create(SECRETS, secret(key="MQ=="))
    assert await woken(queue)
    await client.patch(SECRETS, "keys", {"data": {"key": "Mg=="}}, "default")
    assert await woken(queue)
    assert (await read(references, clock, "keys")).secret("keys") == {"key": b"2"}
    await client.delete(SECRETS, "keys", "default")
    assert await woken(queue)
    await read(references, clock, "keys", maps=("files",))
    await client.create(CONFIG_MAPS, {**secret("files"), "kind": "ConfigMap", "data": {"a.conf": "x"}})
    assert await woken(queue)
    assert (await read(references, clock, maps=("files",))).config_map("files") == {"a.conf": "x"}


async def test_what_nobody_refers_to_wakes_nobody(
    references: References, client: Client, server: FakeApiServer, clock: FakeClock, queue: Queue
) -> None:
    await read(references, clock, "keys")
    references.drop(OWNER)
    await clock.sleep(1)
    assert server.open_watches == []
    await client.create(SECRETS, secret())
    assert not await woken(queue)


async def test_the_owner_of_another_object_of_that_name_sleeps_on(
    references: References, client: Client, clock: FakeClock, queue: Queue
) -> None:
    """scenario 190: a reference never leaves its namespace"""
    await read(references, clock, "keys")
    elsewhere = secret()
    elsewhere["metadata"]["namespace"] = "kube-system"
    await client.create(SECRETS, elsewhere)
    assert not await woken(queue)
    assert (await read(references, clock, "keys")).secrets["keys"] is None


async def test_kinds_without_a_queue_are_only_read(references: References, client: Client, clock: FakeClock) -> None:
    await read(references, clock, "keys")
    await client.create(SECRETS, secret(key="MQ=="))
    await clock.sleep(1)
    assert (await read(references, clock, "keys")).secret("keys") == {"key": b"1"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (KeyReferences(), ""),
        (KeyReferences(slurm_key_ref=SecretKeySelector(name="a", key="k")), "Secret slurm/a does not exist"),
        (KeyReferences(jwt_key_ref=SecretKeySelector(name="b", key="k")), "correct jwtKeyRef"),
        (KeyReferences(jwks_key_ref=ConfigMapKeySelector(name="c", key="k")), "correct jwksKeyRef"),
    ],
)
def test_the_first_missing_key_is_named(keys: KeyReferences, words: str) -> None:
    trouble = Refs({}, {}, loading=False).missing_keys("slurm", keys)
    assert words in (trouble.message if trouble else "")
    assert bool(trouble) == bool(words)


@pytest.mark.parametrize(
    ("code", "reason", "verb", "cure"),
    [
        (403, "Forbidden", "watch", "grant this account the verb 'watch' on '{0}' with a Role in namespace 'default'"),
        (400, "BadRequest", "list", ""),
    ],
)
@pytest.mark.parametrize(("kind", "resource"), [("Secret", "secrets"), ("ConfigMap", "configmaps")])
async def test_what_may_not_be_read_is_neither_missing_nor_silent(
    references: References,
    server: FakeApiServer,
    clock: FakeClock,
    kind: str,
    resource: str,
    code: int,
    reason: str,
    verb: str,
    cure: str,
) -> None:
    """A Role that lacks the kind, a name that is none: nothing is said about the content, but what is wrong."""
    message = f'{resource} is forbidden: User "operator" cannot watch resource "{resource}"'
    fault = server.inject(Refuse(code, reason, message), "list|watch", resource, times=None)
    async with asyncio.timeout(60):
        while (refs := references.read(OWNER, "default", secrets=["keys"], config_maps=["keys"])).refused is None:
            assert refs.after == LOADING
            await clock.sleep(LOADING)
    assert refs.loading
    assert refs.after == REFUSED
    assert refs.refused.reason == "Forbidden"
    assert refs.refused.message.startswith(f"{kind} default/keys may not be read: cannot {verb} {resource}")
    assert cure.format(resource) in refs.refused.message
    fault.times = 0
    refs = await read(references, clock, "keys", maps=("keys",))
    assert refs.refused is None


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Refuse(403, "Forbidden", "User cannot watch"), ""),
        (Refuse(429, retry_after=1), ""),
        (Disconnect(), "nothing heard on the watch of secrets"),
    ],
    ids=["refused", "busy", "away"],
)
async def test_a_refused_reference_is_no_reason_to_restart(
    client: Client, server: FakeApiServer, clock: FakeClock, fault: Refuse | Disconnect, told: str
) -> None:
    """One tenant's reference must not turn the liveness of the whole operator to failure; silence is reported."""
    server.inject(fault, "list|watch", "secrets", times=None)
    caches = Caches(client, clock=clock)
    caches.follow(PODS)
    named = caches.named(SECRETS)
    running = asyncio.create_task(caches.run())
    await caches.synced()
    named.ensure(OWNER, [KEY])
    await clock.sleep(3 * SILENT_SECONDS)
    assert no_dead_watch(lambda: caches.reflectors, clock)() is None
    silent = no_silent_watch(lambda: caches.reflectors, clock)() or ""
    assert silent.startswith(told)
    assert bool(silent) == bool(told)
    running.cancel()


def test_only_the_refusal_is_reported() -> None:
    """The rest of the status is not known now and stays; told once, it is not told again."""
    accounting = examples.accounting()
    loading = Refs({}, {}, loading=True)
    assert unread(ACCOUNTINGS, accounting, loading, 0.0) == Plan(after=LOADING)
    refused = replace(loading, refused=Trouble("Forbidden", "Secret a/b may not be read: grant it"))
    plan = unread(ACCOUNTINGS, accounting, refused, 0.0)
    report, event = plan.actions
    assert isinstance(report, ApplyStatus)
    assert report.part == "references"
    assert list(report.manifest["status"]) == ["conditions"]
    assert isinstance(event, RecordEvent)
    status = msgspec.convert(report.manifest["status"], type(accounting.status))
    degraded = next(condition for condition in status.conditions if condition.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "Forbidden")
    told = msgspec.structs.replace(accounting, status=status)
    assert unread(ACCOUNTINGS, told, refused, 60.0) == Plan(after=REFUSED)
