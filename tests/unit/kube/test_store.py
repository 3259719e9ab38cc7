"""The store: any order of the three writers ends in the same state, and indexes never lie."""

import logging
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slurm_operator.kube import ObjectMeta, Pod, Scope, Store
from slurm_operator.kube.kinds import PodSpec
from slurm_operator.kube.resource import Key, key_of, version_of

ALL = Scope()


def pod(name: str, version: int, namespace: str = "a", node: str = "n1") -> Pod:
    meta = ObjectMeta(name=name, namespace=namespace, resource_version=str(version))
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def by_node(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def listed(*pods: Pod) -> dict[Key, Pod]:
    return {key_of(pod): pod for pod in pods}


def spoiled(*pods: Pod) -> dict[Key, ObjectMeta]:
    """Return the pods as objects that do not fit their type."""
    return {key_of(pod): pod.metadata for pod in pods}


@pytest.fixture
def store() -> Store[Pod]:
    return Store({"node": by_node})


def names(pods: list[Pod]) -> list[str]:
    return sorted(pod.metadata.name for pod in pods)


def test_reads(store: Store[Pod]) -> None:
    for obj in (pod("x", 1), pod("y", 2, "b"), pod("z", 3, "b", "n2")):
        store.upsert(obj)
    assert store.get("b", "y") == pod("y", 2, "b")
    assert store.get("a", "y") is None
    assert names(store.all()) == ["x", "y", "z"]
    assert names(store.all("b")) == ["y", "z"]
    assert names(store.by_index("node", "n1")) == ["x", "y"]
    assert store.by_index("node", "n9") == []
    assert names(list(store)) == ["x", "y", "z"]
    assert len(store) == 3


def test_only_newer_versions_win(store: Store[Pod]) -> None:
    assert store.upsert(pod("x", 5, node="n5"))
    assert not store.upsert(pod("x", 5, node="same"))
    assert not store.upsert(pod("x", 4, node="n4"))
    assert store.upsert(pod("x", 10, node="n10"))
    assert names(store.by_index("node", "n10")) == ["x"]
    assert store.by_index("node", "n5") == []


@pytest.mark.parametrize("scope", [ALL, Scope("a"), Scope("a", "x")])
def test_a_late_answer_does_not_bring_a_deleted_object_back(store: Store[Pod], scope: Scope) -> None:
    store.replace(scope, listed(pod("x", 5)), "6")
    store.remove(pod("x", 8))
    store.advance(scope, "8")
    assert not store.upsert(pod("x", 7))
    assert store.get("a", "x") is None
    assert store.upsert(pod("x", 9)), "recreated"


def test_a_late_delete_does_not_take_the_successor(store: Store[Pod]) -> None:
    store.upsert(pod("x", 9))
    store.remove(pod("x", 8))
    assert store.get("a", "x") == pod("x", 9)


def test_an_answer_older_than_the_listing_that_lacks_it_is_stale(store: Store[Pod]) -> None:
    store.replace(ALL, {}, "10")
    assert not store.upsert(pod("made-and-gone", 9))
    assert store.upsert(pod("made-since", 11))


def test_a_listing_deletes_what_it_lacks(store: Store[Pod]) -> None:
    heard: list[Any] = []
    for obj in (pod("stays", 1), pod("goes", 2), pod("written-later", 12), pod("cannot-be-read", 3)):
        store.upsert(obj)
    store.subscribe(lambda old, new: heard.append((old and old.metadata.name, new and new.metadata.name)))
    heard.clear()
    store.replace(ALL, listed(pod("stays", 1), pod("new", 10)), "11", unreadable=spoiled(pod("cannot-be-read", 9)))
    assert names(store.all()) == ["cannot-be-read", "new", "stays", "written-later"]
    assert heard == [(None, "new"), ("goes", None)]
    assert not store.upsert(pod("goes", 11))


def test_a_listing_speaks_for_its_scope_only(store: Store[Pod]) -> None:
    for obj in (pod("x", 1, "a"), pod("y", 1, "b"), pod("z", 1, "b")):
        store.upsert(obj)
    store.replace(Scope("b"), {}, "5")
    assert names(store.all()) == ["x"]
    store.upsert(pod("y", 6, "b"))
    store.upsert(pod("z", 6, "b"))
    store.replace(Scope("b", "y"), {}, "7")
    assert names(store.all()) == ["x", "z"]


def test_after_a_reset_the_listing_wins_over_everything(store: Store[Pod]) -> None:
    store.upsert(pod("x", 500, node="new"))
    store.upsert(pod("y", 400))
    store.advance(ALL, "500")
    store.replace(ALL, listed(pod("x", 90, node="old"), pod("z", 80)), "100", reset=True)
    assert names(store.all()) == ["x", "z"]
    assert names(store.by_index("node", "old")) == ["x"]


def test_synced_waits_for_every_scope(store: Store[Pod]) -> None:
    store.expect(Scope("a"))
    store.expect(Scope("b"))
    store.replace(Scope("a"), {}, "1")
    assert store.has_synced(Scope("a"))
    assert not store.has_synced(Scope("b"))
    assert not store.synced.is_set()
    store.replace(Scope("b"), {}, "1")
    assert store.synced.is_set()


def test_a_forgotten_scope_leaves_in_silence(store: Store[Pod]) -> None:
    heard: list[Any] = []
    store.expect(Scope("a", "x"))
    store.expect(Scope("a", "y"))
    store.replace(Scope("a", "x"), listed(pod("x", 1)), "1")
    store.subscribe(lambda old, new: heard.append((old, new)))
    heard.clear()
    store.forget(Scope("a", "y"))
    assert store.synced.is_set()
    store.forget(Scope("a", "x"))
    assert not heard
    assert len(store) == 0
    assert not store.has_synced(Scope("a", "x"))


def test_a_late_subscriber_hears_what_is_there(store: Store[Pod]) -> None:
    store.upsert(pod("x", 1))
    heard: list[Any] = []
    store.subscribe(lambda old, new: heard.append((old, new)))
    assert heard == [(None, pod("x", 1))]


def test_a_failing_handler_hurts_nobody(store: Store[Pod], caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def fail(old: Pod | None, new: Pod | None) -> None:
        raise ZeroDivisionError

    store.subscribe(fail)
    store.subscribe(lambda old, new: heard.append(new))
    store.upsert(pod("x", 1))
    assert heard == [pod("x", 1)]
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.records[0].__dict__["object"] == ("a", "x")


def test_an_unreadable_object_keeps_its_last_readable_state(store: Store[Pod]) -> None:
    store.upsert(pod("x", 5))
    store.mark_unreadable(pod("x", 6).metadata)
    store.mark_unreadable(pod("never-read", 7).metadata)
    assert store.unreadable == spoiled(pod("x", 6), pod("never-read", 7))
    assert names(store.all()) == ["x"]
    store.mark_unreadable(pod("x", 8).metadata)
    assert store.unreadable["a", "x"].resource_version == "8"


def test_a_readable_version_ends_it_unless_it_is_older(store: Store[Pod]) -> None:
    """Our own write may be answered with a readable object before the watch tells of it, or with an outdated one."""
    store.mark_unreadable(pod("x", 6).metadata)
    assert not store.upsert(pod("x", 5))
    assert store.unreadable == spoiled(pod("x", 6))
    assert store.upsert(pod("x", 7))
    store.mark_unreadable(pod("x", 6).metadata)
    assert not store.unreadable
    assert store.get("a", "x") == pod("x", 7)


def test_a_deletion_ends_it_unless_it_is_older(store: Store[Pod]) -> None:
    store.upsert(pod("x", 5))
    for name in ("x", "never-read"):
        store.mark_unreadable(pod(name, 8).metadata)
        store.remove(pod(name, 7))
        assert ("a", name) in store.unreadable
        store.remove(pod(name, 9))
    assert not store.unreadable
    assert len(store) == 0


def test_a_complete_listing_ends_it_for_its_scope(store: Store[Pod]) -> None:
    for obj in (pod("gone", 5), pod("fits-again", 5), pod("stays", 5), pod("elsewhere", 5, "b")):
        store.mark_unreadable(obj.metadata)
    store.replace(Scope("a"), listed(pod("fits-again", 6)), "9", unreadable=spoiled(pod("stays", 5), pod("new", 8)))
    assert store.unreadable == spoiled(pod("stays", 5), pod("new", 8), pod("elsewhere", 5, "b"))
    assert names(store.all()) == ["fits-again"]


def test_a_listing_that_is_older_than_our_own_write_marks_nothing(store: Store[Pod]) -> None:
    store.upsert(pod("x", 12))
    store.replace(ALL, {}, "10", unreadable=spoiled(pod("x", 9)))
    assert not store.unreadable
    assert store.get("a", "x") == pod("x", 12)


def test_after_a_reset_an_unreadable_object_becomes_readable_at_a_lower_version(store: Store[Pod]) -> None:
    store.upsert(pod("x", 500, node="new"))
    store.upsert(pod("y", 500))
    store.replace(ALL, {}, "100", unreadable=spoiled(pod("x", 90), pod("y", 91)), reset=True)
    assert store.unreadable == spoiled(pod("x", 90), pod("y", 91))
    assert store.upsert(pod("x", 101, node="restored"))
    assert names(store.by_index("node", "restored")) == ["x"]
    store.replace(ALL, listed(pod("x", 101)), "110")
    assert names(store.all()) == ["x"]


def test_a_forgotten_scope_takes_its_unreadable_objects_along(store: Store[Pod]) -> None:
    for obj in (pod("x", 1), pod("y", 1)):
        store.mark_unreadable(obj.metadata)
    store.forget(Scope("a", "x"))
    assert store.unreadable == spoiled(pod("y", 1))


class ServerAndStore(RuleBasedStateMachine):
    """A server's true history reaches the store through a watch that lags, answers that race it, and relistings."""

    objects = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))

    @initialize()
    def begin(self) -> None:
        self.version = 0
        self.truth: dict[Key, Pod] = {}
        self.spoiled: set[Key] = set()
        self.history: list[tuple[str, Pod]] = []
        self.answers: list[Pod] = []
        self.told = 0
        self.store: Store[Pod] = Store({"node": by_node})
        self.mirror: dict[Key, Pod] = {}
        self.store.subscribe(self.hear)

    def hear(self, old: Pod | None, new: Pod | None) -> None:
        obj = new or old
        assert obj is not None
        assert self.mirror.get(key_of(obj)) == old
        if new is None:
            del self.mirror[key_of(obj)]
        else:
            self.mirror[key_of(obj)] = new

    @rule(key=objects, node=st.sampled_from(["n1", "n2", ""]))
    def write(self, key: Key, node: str) -> None:
        self.version += 1
        obj = pod(key[1], self.version, key[0], node)
        self.history.append(("put", obj))
        self.truth[key] = obj
        self.answers.append(obj)

        self.spoiled.discard(key)

    @rule(key=objects)
    def spoil(self, key: Key) -> None:
        self.version += 1
        self.truth[key] = pod(key[1], self.version, key[0])
        self.history.append(("spoil", self.truth[key]))
        self.spoiled.add(key)

    @rule(key=objects)
    def delete(self, key: Key) -> None:
        if self.truth.pop(key, None):
            self.version += 1
            self.spoiled.discard(key)
            self.history.append(("delete", pod(key[1], self.version, key[0])))

    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        if self.answers:
            self.store.upsert(self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1))))

    @rule(count=st.integers(1, 5))
    def watch_tells(self, count: int) -> None:
        for what, obj in self.history[self.told : self.told + count]:
            if what == "put":
                self.store.upsert(obj)
            elif what == "spoil":
                self.store.mark_unreadable(obj.metadata)
            else:
                self.store.remove(obj)
            self.store.advance(ALL, obj.metadata.resource_version)
        self.told = min(self.told + count, len(self.history))

    @rule()
    def relist(self) -> None:
        self.told = len(self.history)
        fitting = {key: obj for key, obj in self.truth.items() if key not in self.spoiled}
        unreadable = {key: self.truth[key].metadata for key in self.spoiled}
        self.store.replace(ALL, fitting, str(self.version), unreadable=unreadable)

    @invariant()
    def handlers_and_indexes_agree_with_the_store(self) -> None:
        stored = {key_of(obj): obj for obj in self.store}
        assert self.mirror == stored
        for node in ("n1", "n2"):
            expected = [obj for obj in stored.values() if obj.spec.node_name == node]
            assert sorted(self.store.by_index("node", node), key=version_of) == sorted(expected, key=version_of)

    @invariant()
    def once_all_is_told_the_store_is_the_truth(self) -> None:
        if self.told == len(self.history):
            held = {key_of(obj): obj for obj in self.store}
            assert self.store.unreadable == {key: self.truth[key].metadata for key in self.spoiled}
            assert {key: obj for key, obj in held.items() if key not in self.spoiled} == {
                key: obj for key, obj in self.truth.items() if key not in self.spoiled
            }


ServerAndStore.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestServerAndStore = ServerAndStore.TestCase
