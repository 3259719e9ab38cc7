"""Which keys a change in a store leads to."""

from typing import Any

from msgspec.structs import replace

from slurm_operator.kube.kinds import Pod, PodStatus
from slurm_operator.kube.model import ObjectMeta, OwnerReference
from slurm_operator.kube.resource import Key
from slurm_operator.kube.store import Scope, Store
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.sources import feed, intent_changed, itself, owner_of


def make(version: int, owner: str = "", **fields: Any) -> Pod:
    owners = (OwnerReference(kind="NodeSet", name=owner, uid=owner, controller=True),) if owner else ()
    meta = ObjectMeta(name="p", namespace="ns", resource_version=str(version), owner_references=owners)
    return Pod(metadata=replace(meta, **fields))


async def drain(queue: Queue) -> list[Key]:
    keys = []
    while queue.depth:
        keys.append(await queue.get())
        queue.done(keys[-1])
    return keys


async def test_what_was_there_before_us_waits_behind_what_changes() -> None:
    store, queue = Store[Pod](), Queue()
    store.expect(Scope())
    feed(queue, store, itself)
    store.upsert(make(1))
    queue.add(("ns", "urgent"))
    assert await drain(queue) == [("ns", "urgent"), ("ns", "p")]
    store.replace(Scope(), {("ns", "p"): make(1)}, "1")
    queue.add(("ns", "other"), low=True)
    store.upsert(make(2))
    assert await drain(queue) == [("ns", "p"), ("ns", "other")]


async def test_both_the_old_and_the_new_owner_hear_of_a_change() -> None:
    store, queue = Store[Pod](), Queue()
    feed(queue, store, owner_of("NodeSet"))
    store.upsert(make(1, "a"))
    assert await drain(queue) == [("ns", "a")]
    store.upsert(make(2, "b"))
    assert await drain(queue) == [("ns", "a"), ("ns", "b")]
    store.upsert(make(3))
    assert await drain(queue) == [("ns", "b")]


async def test_children_of_another_kind_are_not_ours() -> None:
    assert owner_of("Deployment")(make(1, "a")) == ()


async def test_a_status_is_no_reason_to_start_over() -> None:
    """scenario 15"""
    store, queue = Store[Pod](), Queue()
    feed(queue, store, itself, when=intent_changed)
    store.upsert(make(1))
    assert len(await drain(queue)) == 1
    store.upsert(replace(make(2), status=PodStatus(phase="Running")))
    assert await drain(queue) == []
    changes: list[dict[str, Any]] = [
        {"generation": 2},
        {"labels": {"a": "b"}},
        {"deletion_timestamp": "now"},
        {"uid": "another"},
    ]
    for version, field in enumerate(changes, start=3):
        store.upsert(make(version, **field))
        assert await drain(queue) == [("ns", "p")]
    store.remove(make(9))
    assert await drain(queue) == [("ns", "p")]
