"""Decisions about one Accounting."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from slurm_operator.accounting import (
    CONFIRMED,
    LOST,
    SLOW_START,
    UNSUPPORTED_SECONDS,
    AskDatabase,
    Asked,
    Databases,
    Seen,
    decide,
)
from slurm_operator.api import Accounting
from slurm_operator.kube.kinds import STATEFUL_SETS, Pod, StatefulSet
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.children import Children
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.errors import DatabaseDown, Unreachable, Unsupported
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.clock import FakeClock
from tests.unit.controller.make import (
    KEYS,
    NOW,
    actions,
    applied,
    degraded,
    deleted,
    deleting,
    pod,
    ready,
    refs,
    ring,
    stateful_set,
    status,
    verdict,
    with_status,
)
from tests.unit.desired import examples

SECRETS = {**KEYS, "mariadb-password": {"password": b"hunter2"}}
CHILDREN = {"Service/slurm-accounting", "Secret/slurm-accounting", "StatefulSet/slurm-accounting"}
EXTERNAL = "external: true\nexternalConfig: {host: dbd.example.com, port: 7819}\n"


def seen(
    of: Accounting | None = None,
    workload: StatefulSet | None = None,
    *pods: Pod,
    children: Children = (),
    **fields: Any,
) -> Seen:
    standard = {"refs": refs(SECRETS), "ring": ring(), "refusals": (), "now": NOW}
    return Seen(
        accounting=of if of is not None else examples.accounting(),
        slurmdbd=Daemon(workload, pods, children),
        **{**standard, **fields},
    )


def live(**fields: Any) -> StatefulSet:
    return stateful_set("slurm-accounting", **fields)


def test_everything_is_made() -> None:
    plan = decide(seen())
    assert set(applied(plan)) == CHILDREN
    assert verdict(plan, "Ready")[0] == "False"
    assert "mariadb:3306/slurm_acct_db" in verdict(plan, "Ready")[2]
    assert degraded(plan) == ""


def test_a_key_that_is_said_to_be_optional_is_named_as_without_effect() -> None:
    of = examples.accounting()
    key = of.spec.slurm_key_ref
    assert key is not None
    spec = msgspec.structs.replace(of.spec, slurm_key_ref=msgspec.structs.replace(key, optional=True))
    plan = decide(seen(msgspec.structs.replace(of, spec=spec)))
    assert verdict(plan, "FieldsIgnored")[:2] == ("True", "NotImplemented")
    assert "spec.slurmKeyRef.optional has no effect" in verdict(plan, "FieldsIgnored")[2]
    assert "FieldsIgnored" not in str(status(decide(seen())))


def test_keys_that_all_workers_have_read_restart_slurmdbd() -> None:
    """scenario 187"""
    before, after = (applied(decide(seen(ring=ring(settled=hash_))))["StatefulSet/slurm-accounting"] for hash_ in "ab")
    assert before["spec"]["template"]["metadata"] != after["spec"]["template"]["metadata"]


def test_without_a_key_ring_nothing_is_touched() -> None:
    plan = decide(seen(None, live(), pod(container="slurmdbd"), children=((STATEFUL_SETS, live()),), ring=None))
    assert (applied(plan), deleted(plan)) == ({}, [])


def test_ready_once_slurmdbd_answers_and_silent_afterwards() -> None:
    first = seen(None, live(), pod(container="slurmdbd"))
    plan = decide(first)
    assert verdict(plan, "Ready") == ("True", "Ready", "slurmdbd answers")
    assert plan.after is None
    again = decide(replace(first, accounting=with_status(first.accounting, plan)))
    assert status(again) == {}


def test_a_new_password_restarts_slurmdbd() -> None:
    def template(password: bytes) -> object:
        plan = decide(seen(refs=refs({**KEYS, "mariadb-password": {"password": password}})))
        return applied(plan)["StatefulSet/slurm-accounting"]["spec"]["template"]["metadata"]["annotations"]

    assert template(b"hunter2") == template(b"hunter2") != template(b"hunter3")


@pytest.mark.parametrize(
    ("extra", "secrets", "reason", "named"),
    [
        ("", {}, "SecretNotFound", "slurmKeyRef"),
        ("", KEYS, "SecretNotFound", "storageConfig.passwordKeyRef"),
        ("", {**KEYS, "mariadb-password": {"pass": b""}}, "SecretKeyNotFound", "mariadb-password has no key password"),
        ("jwksKeyRef: {name: jwks, key: jwks.json}\n", SECRETS, "ConfigMapNotFound", "ConfigMap slurm/jwks"),
        ("storageConfig: null\n", SECRETS, "StorageConfigMissing", "storageConfig"),
        ("", {**KEYS, "mariadb-password": {"password": b"\xff"}}, "InvalidSpec", "utf-8"),
        ('extraConf: "DbdPrt=6819"\n', SECRETS, "ConfigurationRejected", "stays in force"),
        ('extraConf: "LogFile=x\\nDbdPrt=6819"\n', SECRETS, "ConfigurationRejected", "extraConf line 2: unknown key"),
        ("service: {spec: {ports: [{name: slurmdbd, port: 1}]}}\n", SECRETS, "InvalidSpec", "slurmdbd"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_touched(
    extra: str, secrets: dict[str, dict[str, bytes]], reason: str, named: str
) -> None:
    workload = live()
    plan = decide(seen(examples.accounting(extra), workload, children=((STATEFUL_SETS, workload),), refs=refs(secrets)))
    assert (ready(plan), degraded(plan)) == (False, reason)
    assert named in verdict(plan, "Degraded")[2]
    assert (applied(plan), deleted(plan)) == ({}, [])


def silent(seconds: float, **fields: Any) -> Pod:
    """A slurmdbd that has been running for so long and does not listen."""
    found = pod("slurm-accounting-0", container="slurmdbd", ready=False, **fields)
    since = rfc3339(NOW - seconds)
    conditions = tuple(msgspec.structs.replace(one, last_transition_time=since) for one in found.status.conditions)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=conditions))


@pytest.mark.parametrize(
    ("daemon", "reason", "after"),
    [
        (silent(0), "", SLOW_START),
        (silent(10), "", SLOW_START - 10),
        (silent(31), "DatabaseUnreachable", None),
        (silent(31, terminating=True), "", None),
        (pod(container="slurmdbd"), "", None),
        (pod(container="sidecar", ready=False), "", None),
        (silent(31, waiting="ErrImagePull"), "ErrImagePull", None),
    ],
)
def test_a_slurmdbd_that_keeps_silent_waits_for_its_database(daemon: Pod, reason: str, after: float | None) -> None:
    """Told after half a minute, and looked at again just then."""
    plan = decide(seen(None, live(ready=0), daemon))
    assert degraded(plan) == reason
    assert (plan.after is None) == (after is None)
    assert plan.after == (pytest.approx(after, abs=0.01) if after is not None else None)
    if reason == "DatabaseUnreachable":
        told = verdict(plan, "Degraded")[2]
        assert "mariadb:3306/slurm_acct_db" in told
        assert "password" in told


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(
    ("fields", "asks", "lost"),
    [
        ({"cluster": None, "ask_in": 0.0}, False, False),
        ({"ask_in": 3.0}, False, False),
        ({"ask_in": 0.0}, True, False),
        ({"ask_in": 0.0, "database": Asked(0.0, failures=1)}, True, False),
        ({"ask_in": 0.0, "database": Asked(0.0, CONFIRMED)}, True, True),
        ({"ask_in": 3.0, "database": Asked(0.0, CONFIRMED)}, False, True),
        ({"cluster": None, "database": Asked(0.0, CONFIRMED), "used": False}, False, False),
        ({"cluster": None, "database": Asked(0.0, CONFIRMED)}, False, True),
    ],
)
def test_a_database_that_is_lost_is_told_although_slurmdbd_listens(
    external: bool, fields: dict[str, Any], asks: bool, lost: bool
) -> None:
    of = examples.accounting(EXTERNAL if external else "")
    plan = decide(seen(of, live(), pod(container="slurmdbd"), **{"cluster": ("slurm", "slurm"), **fields}))
    assert [action.cluster for action in actions(plan) if isinstance(action, AskDatabase)] == [
        ("slurm", "slurm")
    ] * asks
    assert (ready(plan), degraded(plan)) == (not lost, LOST if lost else "")
    assert (plan.after is None) == ("cluster" in fields), "it is asked as long as a cluster uses it"
    if lost:
        before = with_status(of, plan)
        again = decide(seen(before, live(), pod(container="slurmdbd"), cluster=None))
        assert status(again) == {}, "what a new process has not asked yet is no news"
        gone = decide(seen(before, live(ready=0), silent(1), cluster=None))
        assert external or degraded(gone) == "", "a slurmdbd that does not run is not asked"
        unused = decide(seen(before, live(), pod(container="slurmdbd"), cluster=None, used=False))
        assert (ready(unused), degraded(unused)) == (True, ""), "it would never be asked again"
        answered = decide(
            seen(before, live(), pod(container="slurmdbd"), database=Asked(0.0, 0), cluster=("slurm", "slurm"))
        )
        assert (ready(answered), degraded(answered)) == (True, "")
        assert ("dbd.example.com:7819" if external else "mariadb:3306") in verdict(plan, "Degraded")[2]


async def test_a_slurm_that_does_not_answer_holds_no_worker() -> None:
    """With one worker, a second Accounting is asked while the first waits."""
    asked, all_asked = list[str](), asyncio.Event()

    class Silent:
        async def accounting_clusters(self) -> None:
            asked.append("")
            if len(asked) == 2:
                all_asked.set()
            await all_asked.wait()

    class Views:
        def client(self, _: object) -> Silent:
            return Silent()

    databases = Databases(cast("SlurmViews", Views()), FakeClock())

    async def reconcile(key: Key) -> Result:
        await databases.ask(key, key)
        return Result()

    queue = Queue("accounting")
    workers = Controller("accounting", queue, reconcile, workers=1)
    running = asyncio.create_task(workers.run())
    queue.add(("a", "slurm"))
    queue.add(("b", "slurm"))
    async with asyncio.timeout(2):
        await all_asked.wait()
    queue.shut_down()
    await running


@pytest.mark.parametrize("silence", [Unreachable("GET clusters/"), TimeoutError()])
async def test_only_slurmdbd_says_that_its_database_is_lost(silence: Exception) -> None:
    """Without an answer of slurmrestd what was heard before stands."""
    answers = iter([silence, silence, DatabaseDown("GET clusters/"), silence, DatabaseDown("GET clusters/"), silence])

    class Moody:
        async def accounting_clusters(self) -> None:
            raise next(answers)

    class Views:
        def client(self, _: object) -> Moody:
            return Moody()

    key = ("slurm", "slurm")
    databases = Databases(cast("SlurmViews", Views()), SystemClock())
    assert [await databases.ask(key, key) for _ in range(6)] == [False, False, False, False, True, False]
    assert databases.asked(key).failures == CONFIRMED


async def test_a_slurmrestd_that_does_not_know_of_accounting_is_seldom_asked() -> None:
    """Each question makes the client look anew which versions this slurmrestd knows."""

    class Bare:
        async def accounting_clusters(self) -> None:
            raise Unsupported("GET clusters/")

    class Views:
        def client(self, _: object) -> Bare:
            return Bare()

    class Still(SystemClock):
        def monotonic(self) -> float:
            return 100.0

    key = ("slurm", "slurm")
    databases = Databases(cast("SlurmViews", Views()), Still())
    assert not await databases.ask(key, key)
    assert databases.asked(key).failures == 0
    assert databases.asked(key).due_in(100.0) == UNSUPPORTED_SECONDS
    plan = decide(seen(None, live(), pod(container="slurmdbd"), cluster=key, ask_in=UNSUPPORTED_SECONDS))
    assert (plan.after, ready(plan)) == (UNSUPPORTED_SECONDS, True)


def test_a_slurmdbd_that_does_not_run_is_not_asked() -> None:
    plan = decide(seen(None, live(ready=0), silent(1), cluster=("slurm", "slurm"), ask_in=0.0))
    assert not [action for action in actions(plan) if isinstance(action, AskDatabase)]


def test_a_silent_pod_without_conditions_counts_from_its_start() -> None:
    found = silent(0)
    bare = msgspec.structs.replace(found.status, conditions=(), start_time=rfc3339(NOW - 60))
    plan = decide(seen(None, live(ready=0), msgspec.structs.replace(found, status=bare)))
    assert degraded(plan) == "DatabaseUnreachable"


def test_an_external_slurmdbd_needs_nothing() -> None:
    """scenario 188: nothing is made, and what an internal one left behind goes."""
    workload = live()
    plan = decide(seen(examples.accounting(EXTERNAL), workload, children=((STATEFUL_SETS, workload),)))
    assert applied(plan) == {}
    assert deleted(plan) == ["StatefulSet/slurm-accounting"]
    assert verdict(plan, "Ready") == ("True", "Ready", "slurmdbd runs elsewhere, at dbd.example.com:7819")
    assert plan.after is None


def test_nothing_is_done_for_one_that_goes_or_is_not_known_yet() -> None:
    assert decide(seen(deleting(examples.accounting()))).actions == ()
    loading = decide(seen(refs=refs({}, loading=True)))
    assert loading.actions == ()
    assert loading.after


def test_what_may_not_be_read_is_reported_and_nothing_is_made() -> None:
    refused = Trouble("Forbidden", "Secret slurm/given may not be read: grant it")
    plan = decide(seen(refs=refs({}, loading=True, refused=refused)))
    assert (ready(plan), verdict(plan, "Degraded")) == (False, ("True", refused.reason, refused.message))
    assert (applied(plan), deleted(plan)) == ({}, [])
