"""Projections: every field is really read, nothing more is kept, nothing is ever written back."""

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from slurm_operator.kube import PODS, Client, KubeConfig, Object, Pod, Resource, Store, kinds
from slurm_operator.kube.model import Condition, find_condition, shared, shared_each
from slurm_operator.kube.watch import decode_object
from tests.unit.kube.objects import WHOLE, worker_pod

RESOURCES: list[Resource[Any]] = [value for value in vars(kinds).values() if isinstance(value, Resource)]
FILTERED_ON = {"managed_fields.subresource", "_state.running", "_statuses.state.running", "running.started_at"}
"""Read to drop the entries that have it, or moved to the pod's status."""
BYTES_PER_POD = 2560


def decode(res: Resource[Any], obj: object) -> Any:
    return decode_object(res.type, msgspec.json.encode(obj))


def left_at_default(value: Any, path: str) -> Iterator[str]:
    """Fields that the whole object did not fill: it lacks them, or we misspell them."""
    values = value if isinstance(value, tuple) else (value,)
    if not values or not isinstance(values[0], msgspec.Struct):
        return
    for field in msgspec.structs.fields(values[0]):
        found = [getattr(item, field.name) for item in values]
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        filled = [item for item in found if item != default]
        if filled:
            nested = filled[0] if isinstance(filled[0], tuple) else tuple(filled)
            yield from left_at_default(nested, f"{path}.{field.name}")
        else:
            yield f"{path}.{field.name}"


@pytest.mark.parametrize("res", RESOURCES, ids=lambda res: res.kind)
def test_every_projected_field_is_filled_by_a_whole_object(res: Resource[Any]) -> None:
    empty = left_at_default(decode(res, WHOLE[res.kind]), res.kind)
    assert not [path for path in empty if not path.endswith(tuple(FILTERED_ON))]


@pytest.mark.parametrize("res", RESOURCES, ids=lambda res: res.kind)
def test_an_object_that_holds_nothing_but_its_name_decodes(res: Resource[Any]) -> None:
    assert decode(res, {"metadata": {"name": "a"}}).metadata.name == "a"


async def test_a_projection_is_never_written() -> None:
    pod = decode(PODS, worker_pod())
    meta = {"name": "a", "namespace": "b"}
    async with Client(KubeConfig("http://127.0.0.1:1")) as client:
        with pytest.raises(TypeError):
            await client.create(PODS, pod)
        with pytest.raises(TypeError):
            await client.apply(PODS, {"metadata": meta, "spec": pod.spec}, manager="m")
        with pytest.raises(TypeError):
            await client.patch(PODS, "a", {"status": {"conditions": pod.status.conditions}}, "b")


def test_a_projection_cannot_be_changed() -> None:
    pod = decode(PODS, worker_pod())
    with pytest.raises(AttributeError):
        pod.spec.node_name = "other"


def test_annotations_of_others_are_dropped() -> None:
    annotations = decode(PODS, worker_pod()).metadata.annotations
    assert set(annotations) == {
        "nodeset.slinky.slurm.net/pod-deletion-cost",
        "slinky.slurm.net/sshd-conf-hash",
        "topology.slinky.slurm.net/spec",
    }


def test_managed_fields_are_kept_only_where_we_apply_and_only_of_those_who_apply() -> None:
    service = decode(kinds.SERVICES, WHOLE["Service"])
    assert [(entry.manager, entry.operation) for entry in service.metadata.managed_fields] == [
        ("slurm-operator", "Apply")
    ]
    assert not hasattr(decode(PODS, worker_pod()).metadata, "managed_fields")


def test_equal_parts_are_held_once() -> None:
    first, second = (decode(PODS, worker_pod(number)) for number in (0, 3600))
    assert first.status.conditions is second.status.conditions
    assert first.metadata.owner_references is second.metadata.owner_references
    assert first.status.container_statuses[0] is second.status.container_statuses[0]
    assert first.metadata.name is first.spec.hostname
    assert shared_each(()) == ()
    assert shared(("a",)) is shared(("a",))


def test_finds_a_condition() -> None:
    ready = Condition(type="Ready", status="True")
    assert find_condition((Condition(type="Other", status="False"), ready), "Ready") is ready
    assert ready.is_true
    assert find_condition((ready,), "Missing") is None


@pytest.mark.parametrize("status", ["true", "", "Yes, mostly"])
@pytest.mark.parametrize(
    "res",
    [kinds.PODS, kinds.NODES, kinds.STATEFUL_SETS, kinds.DEPLOYMENTS, kinds.CUSTOM_RESOURCE_DEFINITIONS],
    ids=lambda res: res.kind,
)
def test_a_condition_of_another_program_may_have_any_status(res: Resource[Any], status: str) -> None:
    conditions = [{"type": "example.com/gate", "status": status, "lastTransitionTime": None}]
    obj = decode(res, {"metadata": {"name": "a"}, "status": {"conditions": conditions}})
    found = find_condition(obj.status.conditions, "example.com/gate")
    assert found is not None
    assert found.status == status
    assert not found.is_true


def test_binary_values_arrive_decoded() -> None:
    assert decode(kinds.SECRETS, WHOLE["Secret"]).data == {"slurm.key": b"secret"}


def test_a_cached_pod_is_small() -> None:
    """2.5 KB with its place in the store and two indexes, of 10 KB of JSON."""
    count = 5000
    store = Store[Pod]({"node": lambda pod: [pod.spec.node_name], "owner": owners})
    bodies = [msgspec.json.encode(worker_pod(number)) for number in range(count)]
    assert 9_000 < len(bodies[0]) < 11_500
    gc.collect()
    tracemalloc.start()
    for body in bodies:
        store.upsert(decode_object(Pod, body))
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < BYTES_PER_POD


def owners(obj: Object) -> list[str]:
    assert isinstance(obj, Pod)
    return [owner.uid for owner in obj.metadata.owner_references]
