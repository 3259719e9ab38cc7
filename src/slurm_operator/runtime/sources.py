"""From what changed to whose work it is: subscriptions that turn changes in a store into keys in a queue."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from slurm_operator.kube.model import ObjectMeta
from slurm_operator.kube.resource import Key, Object, key_of
from slurm_operator.kube.store import Store
from slurm_operator.runtime.queue import Queue

T = TypeVar("T", bound=Object)


def feed(
    queue: Queue,
    store: Store[T],
    keys: Callable[[T], Iterable[Key]],
    *,
    when: Callable[[T, T], bool] = lambda old, new: True,
) -> None:
    """Adds `keys` of both the old and the new state, so that the former owner of a moved object hears of it too.

    `when` filters updates; objects that appear or vanish always count. What was there before we were is less urgent
    than what changes now.
    """

    def changed(old: T | None, new: T | None) -> None:
        # Whose it is costs less to find out than what changed, and most changes are nobody's here.
        concerned = dict.fromkeys(key for obj in (old, new) if obj is not None for key in keys(obj))
        if not concerned or (old is not None and new is not None and not when(old, new)):
            return
        low = not store.synced.is_set()
        for key in concerned:
            queue.add(key, low=low)

    store.subscribe(changed)


def itself(obj: Object) -> tuple[Key]:
    return (key_of(obj),)


class _Described(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def intent_changed(old: _Described, new: _Described) -> bool:
    """Whether a person changed what they want; a status, ours or another's, is no reason to start over."""
    return _intent(old.metadata) != _intent(new.metadata)


def _intent(meta: ObjectMeta) -> tuple[Any, ...]:
    return meta.uid, meta.generation, meta.deletion_timestamp, meta.labels, meta.annotations, meta.finalizers


def owner_of(kind: str) -> Callable[[_Described], tuple[Key, ...]]:
    """The keys of children: their controlling owner, if it is of this kind."""

    def owner(obj: _Described) -> tuple[Key, ...]:
        found = obj.metadata.controller
        return ((obj.metadata.namespace, found.name),) if found is not None and found.kind == kind else ()

    return owner
