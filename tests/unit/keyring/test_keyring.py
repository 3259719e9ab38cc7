"""Rotations of the auth/slurm key, step by step: nobody is left behind, and nobody is asked to hurry."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import Accounting, Controller, names
from slurm_operator.desired.keyring import Progress, key_ring, progress_of, rings_hash, rings_of
from slurm_operator.keyring import LONG, LOOK, TELLING, Cluster, Seen, decide
from slurm_operator.kube.kinds import Pod, Secret, StatefulSet, Template, TemplateMeta
from slurm_operator.kube.model import ChildMeta
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.references import LOADING, REFUSED
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.keys import KeyRing
from slurm_operator.slurm.known import Known, State, Unknown
from slurm_operator.slurm.model import Node, Number
from tests.unit.controller.make import NOW, applied, deleted, patched, pod, refs, stateful_set
from tests.unit.desired import examples

SECRET = "slurm-auth-slurm"
RING = f"Secret/{SECRET}-ring"
OLD, NEW, NEWER = b"o" * 32, b"n" * 32, b"m" * 32
BEFORE = int(NOW) - 30
MEMBERS: tuple[Controller | Accounting, ...] = (examples.controller(), examples.accounting())


def ring(*keys: bytes, signs: bytes = b"", settled: bool = True, since: int = BEFORE, **notes: str) -> Secret:
    rings = {"slurm.key": KeyRing(keys, signs or keys[0])}
    progress = Progress(since, rings_hash(rings) if settled else "earlier", **notes)
    return stored(key_ring("slurm", SECRET, MEMBERS, rings, progress))


def stored(manifest: dict[str, Any]) -> Secret:
    """The Secret as the server would hold it."""
    meta = manifest["metadata"]
    data = {key: b64decode(value) for key, value in manifest["data"].items()}
    found = ChildMeta(name=meta["name"], namespace=meta["namespace"], uid="uid-ring", annotations=meta["annotations"])
    return Secret(metadata=found, data=data)


def slurm(**starts: int) -> Known:
    """Workers by name, and when each last started its slurmd."""
    nodes = {
        name: Node(name=name, state=("IDLE",), slurmd_start_time=Number(set=True, number=start))
        for name, start in starts.items()
    }
    return Known(nodes, 0.0, NOW, 0, 0, {}, frozenset())


def worker(name: str, **fields: Any) -> Pod:
    return pod(name, container="slurmd", labels={names.LABEL_POD_HOSTNAME: name}, **fields)


def daemons(digest: str = "", *, ready: int = 1) -> dict[str, StatefulSet]:
    """slurmctld and slurmdbd with the keys of this hash."""
    template = Template(metadata=TemplateMeta(annotations={names.ANNOTATION_SLURM_KEY_HASH: digest}))
    return {
        name: stateful_set(name, ready=ready, template=template) for name in ("slurm-controller", "slurm-accounting")
    }


def seen(key: bytes, found: Secret | None, *workers: Pod, state: State | None = None, **fields: Any) -> Seen:
    logins = fields.pop("logins", ())
    standard: dict[str, Any] = {
        "members": MEMBERS,
        "refs": refs({SECRET: {"slurm.key": key}}),
        "daemons": daemons(rings_hash(rings_of(found)) if found is not None else ""),
        "clusters": {"slurm": Cluster(workers, logins, state if state is not None else slurm())},
        "now": NOW,
    }
    return Seen(key=("slurm", SECRET), ring=found, **{**standard, **fields})


def keys(plan: Plan[Any]) -> KeyRing:
    """The ring that would be written."""
    return rings_of(stored(applied(plan)[RING]))["slurm.key"]


def progress(plan: Plan[Any]) -> Progress:
    return progress_of(stored(applied(plan)[RING]))


def test_a_first_ring_holds_the_key_and_is_owned_by_all_who_use_it() -> None:
    plan = decide(seen(OLD, None))
    assert keys(plan) == KeyRing.of(OLD)
    assert progress(plan).settled == rings_hash({"slurm.key": KeyRing.of(OLD)})
    owners = applied(plan)[RING]["metadata"]["ownerReferences"]
    assert [(owner["kind"], "controller" in owner) for owner in owners] == [
        ("Accounting", False),
        ("Controller", False),
    ]


def test_at_rest_the_same_is_wanted_again_and_nobody_is_touched() -> None:
    found = ring(OLD)
    plan = decide(seen(OLD, found, worker("small-0")))
    assert stored(applied(plan)[RING]) == found
    assert (patched(plan), plan.after) == ({}, None)


def test_a_new_key_is_believed_at_once_and_the_old_one_signs_on() -> None:
    plan = decide(seen(NEW, ring(OLD)))
    assert keys(plan) == KeyRing((OLD, NEW), OLD)
    assert progress(plan) == Progress(int(NOW), rings_hash({"slurm.key": KeyRing.of(OLD)}))


def test_all_pods_are_touched_so_that_their_kubelets_bring_the_keys() -> None:
    found = ring(OLD, NEW, settled=False)
    digest = rings_hash(rings_of(found))
    has_it = {names.ANNOTATION_SLURM_KEY_HASH: digest}
    pods = (worker("small-0"), worker("small-1", annotations=has_it), worker("gone", terminating=True))
    plan = decide(seen(NEW, found, *pods, logins=(pod("login-x"),), state=slurm(**{"small-0": 1})))
    assert set(patched(plan)) == {"small-0", "login-x"}
    assert patched(plan)["small-0"]["metadata"]["annotations"] == has_it
    assert plan.after == LOOK


@pytest.mark.parametrize(
    ("state", "settles"),
    [
        (slurm(**{"small-0": BEFORE + TELLING}), True),
        (slurm(**{"small-0": BEFORE + TELLING - 1}), False),
        (slurm(**{"small-0": 0}), False),
        (slurm(other=BEFORE - 9), True),
        (Unknown(NOW, "slurmrestd does not answer"), False),
    ],
    ids=["started since", "started too soon", "start unknown", "no record, no job", "slurm unknown"],
)
def test_slurmctld_follows_when_every_worker_has_read_the_keys(state: State, settles: bool) -> None:
    """scenario 187"""
    found = ring(OLD, NEW, settled=False)
    plan = decide(seen(NEW, found, worker("small-0"), state=state))
    assert keys(plan) == KeyRing((OLD, NEW), OLD), "nothing else changes meanwhile"
    assert (progress(plan).settled == rings_hash(rings_of(found))) == settles
    assert progress(plan).since == BEFORE


def test_a_worker_that_is_down_is_not_waited_for() -> None:
    down = {
        "small-0": Node(name="small-0", state=("DOWN", "NOT_RESPONDING"), slurmd_start_time=Number(set=True, number=1))
    }
    state = replace(slurm(), nodes=down)
    assert (
        progress(decide(seen(NEW, ring(OLD, NEW, settled=False), worker("small-0"), state=state))).settled != "earlier"
    )


def test_without_workers_slurm_need_not_be_asked() -> None:
    state = Unknown(NOW, "no RestApi of this cluster is known")
    assert progress(decide(seen(NEW, ring(OLD, NEW, settled=False), state=state))).settled != "earlier"


@pytest.mark.parametrize(
    ("found", "following"),
    [
        (ring(OLD, NEW), KeyRing((OLD, NEW), NEW)),
        (ring(OLD, NEW, signs=NEW), KeyRing.of(NEW)),
    ],
    ids=["it signs", "it is alone"],
)
def test_the_next_step_waits_for_slurmctld_and_slurmdbd(found: Secret, following: KeyRing) -> None:
    """scenario 187"""
    now = rings_of(found)["slurm.key"]
    digest = rings_hash(rings_of(found))
    assert keys(decide(seen(NEW, found))) == following
    assert keys(decide(seen(NEW, found, daemons=daemons("earlier")))) == now
    assert keys(decide(seen(NEW, found, daemons=daemons(digest, ready=0)))) == now
    assert keys(decide(seen(NEW, found, daemons={"slurm-controller": None}))) == now


def test_a_change_of_mind_on_the_way_is_followed_without_a_leap() -> None:
    plan = decide(seen(NEWER, ring(OLD, NEW, settled=False)))
    assert keys(plan) == KeyRing((OLD, NEW, NEWER), OLD)
    assert keys(decide(seen(OLD, ring(OLD, NEW, signs=NEW)))) == KeyRing((OLD, NEW), OLD)


def test_another_key_of_the_same_secret_does_not_hurry_the_first() -> None:
    other = msgspec.structs.replace(
        examples.accounting().spec.slurm_key_ref or pytest.fail("it has one"), key="other.key"
    )
    accounting = examples.accounting()
    accounting = msgspec.structs.replace(accounting, spec=msgspec.structs.replace(accounting.spec, slurm_key_ref=other))
    found = ring(OLD, NEW, settled=False)
    both = refs({SECRET: {"slurm.key": NEW, "other.key": NEWER}})
    plan = decide(seen(NEW, found, worker("small-0"), members=(examples.controller(), accounting), refs=both))
    assert rings_of(stored(applied(plan)[RING])) == {
        "slurm.key": KeyRing((OLD, NEW), OLD),
        "other.key": KeyRing.of(NEWER),
    }


def test_a_step_that_takes_long_says_what_it_waits_for_and_then_no_more() -> None:
    late = ring(OLD, NEW, settled=False, since=int(NOW - LONG) - 1)
    waits = seen(NEW, late, worker("small-0"), state=slurm(**{"small-0": 1}))
    assert progress(decide(waits)).waiting == "pod slurm/small-0 has not read the new keys yet"
    unknown = replace(waits, clusters={"slurm": Cluster((worker("small-0"),), (), Unknown(NOW, "it is silent"))})
    assert "it is silent" in progress(decide(unknown)).waiting
    assert progress(decide(seen(NEW, ring(OLD, NEW, settled=False), waits.clusters["slurm"].workers[0]))).waiting == ""
    assert progress(decide(seen(NEW, ring(NEW, waiting="for long")))).waiting == ""


@pytest.mark.parametrize("given", [{}, {SECRET: {"other": OLD}}, {SECRET: {"slurm.key": b"short"}}])
def test_without_a_good_key_everything_stays(given: dict[str, dict[str, bytes]]) -> None:
    assert decide(seen(OLD, ring(OLD), refs=refs(given))).actions == ()


def test_nothing_is_done_before_the_answer_is_in() -> None:
    plan = decide(seen(OLD, None, refs=refs({}, loading=True)))
    assert (plan.actions, plan.after) == ((), LOADING)
    refused = decide(seen(OLD, None, refs=refs({}, loading=True, refused=Trouble("Forbidden", "not allowed"))))
    assert (refused.actions, refused.after) == ((), REFUSED)


def test_a_ring_that_nobody_uses_goes() -> None:
    assert deleted(decide(seen(OLD, ring(OLD), members=()))) == [RING]
