"""When a configuration counts as delivered, and why slurmctld has no pods."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import Controller, names
from slurm_operator.controller.decide import decide
from slurm_operator.controller.delivery import (
    LISTEN_SECONDS,
    LOG_BYTES,
    LONG_SECONDS,
    PATIENT_SECONDS,
    Deliveries,
    Listen,
    read_log,
)
from slurm_operator.controller.observe import Seen
from slurm_operator.desired.config import ControllerFacts, config_hash
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import Pod
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.uncreated import Explain, Refusals, unheard
from tests.fakes.apiserver import Disconnect, FakeApiServer, Refuse
from tests.unit.controller.make import NOW, actions, degraded, events, pod, ready, status, verdict, with_status
from tests.unit.controller.test_decide import INPLACE, live, seen
from tests.unit.desired import examples


def test_a_configuration_counts_as_delivered_when_every_slurmctld_has_started_with_it() -> None:
    controller = reported_before(examples.controller(), "before")
    wanted = config_hash(controller, ControllerFacts())

    def given(*hashes: str, **about: Any) -> object:
        note = names.ANNOTATION_SLURM_CONFIG_HASH
        pods = [pod(f"slurm-controller-{at}", annotations={note: text}, **about) for at, text in enumerate(hashes)]
        plan = decide(seen(controller, live(controller), *pods))
        delivered = status(plan).get("deliveredConfigHash")
        assert (names.EVENT_CONFIGURATION_DELIVERED in events(plan)) == (delivered == wanted)
        return delivered

    assert given(wanted) == wanted
    assert given("before", wanted) == "before"
    assert given("before") == "before"
    assert given() == "before"
    assert given(wanted, ready=False) == "before", "it may not start with this configuration"


def reported_before(controller: Controller, delivered: str) -> Controller:
    status = msgspec.structs.replace(controller.status, delivered_config_hash=delivered)
    return msgspec.structs.replace(controller, status=status)


@pytest.mark.parametrize(
    ("line", "delivered", "reason"),
    [
        ("accepted {}", True, ""),
        ("accepted {}\nrefused {}: Bad value", False, "ConfigurationRefused"),
        ("refused {}: Bad value\naccepted {}\nanother line", True, ""),
        ("waiting {}: Unable to contact slurm controller", False, ""),
        (f"accepted {'0' * 64}", False, ""),
        (f"refused {'0' * 64}: Bad value", False, ""),
        ("accepted", False, ""),
        ("", False, ""),
    ],
)
def test_in_place_a_configuration_counts_as_delivered_when_slurmctld_has_accepted_it(
    line: str, delivered: bool, reason: str
) -> None:
    controller = reported_before(examples.controller(INPLACE), "before")
    wanted = config_hash(controller, ControllerFacts())
    heard = read_log("uid-slurm-controller-0", line.replace("{}", wanted))
    plan = decide(seen(controller, live(controller), pod(), heard=heard))
    assert status(plan)["deliveredConfigHash"] == (wanted if delivered else "before")
    assert (degraded(plan), ready(plan)) == (reason, not reason)
    assert [action for action in actions(plan) if isinstance(action, Listen)], "the status is not written yet"
    assert verdict(plan, "Progressing")[1] == (
        "Settled" if delivered else "Blocked" if reason else "ConfigurationPending"
    )
    if reason:
        told = verdict(plan, "Degraded")[2]
        assert "pod slurm/slurm-controller-0" in told
        assert "Bad value" in told
        assert "correct extraConf" in told


@pytest.mark.parametrize("line", ["refused {}: Bad value", "accepted {}"])
def test_what_another_pod_said_counts_for_nothing(line: str) -> None:
    controller = reported_before(examples.controller(INPLACE), "before")
    heard = read_log("uid-of-its-predecessor", line.replace("{}", config_hash(controller, ControllerFacts())))
    plan = decide(seen(controller, live(controller), pod(), heard=heard))
    assert (degraded(plan), status(plan)["deliveredConfigHash"]) == ("", "before")


def test_the_log_is_read_only_while_a_configuration_is_under_way() -> None:
    def listens(controller: Controller, *pods: Pod) -> bool:
        plan = decide(seen(controller, live(controller), *pods))
        listening = any(isinstance(action, Listen) for action in actions(plan))
        assert (plan.after is not None) == listening
        return listening

    controller = examples.controller(INPLACE)
    done = reported_before(controller, config_hash(controller, ControllerFacts()))
    assert listens(controller, pod())
    assert not listens(done, pod())
    assert not listens(controller, pod(ready=False))
    assert not listens(controller, pod(terminating=True))
    assert not listens(examples.controller(), pod())


async def test_a_log_that_cannot_be_read_changes_nothing_and_is_told() -> None:
    deliveries = Deliveries()
    controller = examples.controller(INPLACE)
    wanted = config_hash(controller, ControllerFacts())
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        made = {"metadata": {"name": "slurm-controller-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        server.cluster.create(server.cluster.kind("Pod"), made, "default")
        server.cluster.logs["default", "slurm-controller-0", "reconfigure"] = "first\n" * 9 + f"refused {wanted}: Bad\n"

        async def listen() -> bool:
            return await deliveries.listen(client, ("default", "slurm"), "slurm-controller-0", "uid-slurm-controller-0")

        assert [await listen(), await listen()] == [True, False], "news, and the same again"
        server.inject(Refuse(403), "get", "pods/log")
        assert await listen()
    heard = deliveries.heard(("default", "slurm"))
    assert heard is not None
    assert heard.refusal == "Bad"
    plan = decide(seen(controller, live(), pod(), heard=replace(heard, refusal="")))
    assert "which cannot be read" in verdict(plan, "Progressing")[2]
    refused = decide(seen(controller, live(), pod(), heard=heard))
    assert degraded(refused) == "ConfigurationRefused"
    assert status(decide(seen(with_status(controller, refused), live(), pod(), heard=None))) == {}
    gone = decide(seen(with_status(controller, refused), live(ready=0), pod(ready=False), heard=None))
    assert degraded(gone) != "ConfigurationRefused", "slurmctld does not run on with the configuration before it"
    restarted = decide(seen(with_status(controller, plan), live(), pod(), heard=None))
    assert status(restarted) == {}, "what a new process has not read yet is no news"


@pytest.mark.parametrize("fault", [Refuse(500, message="read tcp 10.0.0.1:{}->10.0.0.9:10250: reset"), Disconnect()])
async def test_a_log_that_stays_unreadable_is_told_once(fault: Refuse | Disconnect) -> None:
    """The text of the error may differ each time (it names the port of a connection), which is no news."""
    deliveries = Deliveries()
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        news = []
        for number in range(3):
            named = replace(fault, message=fault.message.format(number)) if isinstance(fault, Refuse) else fault
            server.faults.clear()
            server.inject(named, "get", "pods/log", times=None)
            news.append(await deliveries.listen(client, ("default", "slurm"), "slurm-controller-0", "uid"))
    assert news == [True, False, False]


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x1c", "\u2028"])
def test_the_reason_of_a_refusal_begins_no_line(separator: str) -> None:
    heard = read_log("uid", f"refused {'a' * 64}: Bad value {separator}accepted {'a' * 64}")
    assert not heard.accepted
    assert heard.refusal.startswith("Bad value")


async def test_a_log_without_end_is_not_read_to_its_end() -> None:
    """A user may give the sidecar an image of their own."""
    deliveries = Deliveries()
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        made = {"metadata": {"name": "slurm-controller-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        server.cluster.create(server.cluster.kind("Pod"), made, "default")
        server.cluster.logs["default", "slurm-controller-0", "reconfigure"] = "x" * 10_000_000
        sizes = []
        plain = client.log

        async def log(*args: Any, **options: Any) -> str:
            text = await plain(*args, **options)
            sizes.append(len(text))
            return text

        client.log = log  # type: ignore[method-assign]  # only to see what travels
        await deliveries.listen(client, ("default", "slurm"), "slurm-controller-0", "uid")
    assert sizes == [LOG_BYTES]


def test_a_configuration_that_is_long_under_way_is_asked_for_less_often() -> None:
    controller = examples.controller(INPLACE)
    first = seen(controller, live(), pod())
    pending = with_status(controller, decide(first))
    assert decide(replace(first, controller=pending)).after == LISTEN_SECONDS
    assert decide(replace(first, controller=pending, now=NOW + LONG_SECONDS + 1)).after == PATIENT_SECONDS


FORBIDDEN = 'pods "slurm-controller-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'


def test_pods_that_may_not_be_created_are_explained() -> None:
    short = live()
    short = msgspec.structs.replace(short, status=msgspec.structs.replace(short.status, replicas=0, updated_replicas=0))
    about = seen(None, short)

    def lacking(missing_for: float, refusal: str = "") -> Seen:
        return replace(about, slurmctld=replace(about.slurmctld, missing_for=missing_for, refusal=refusal))

    early = decide(lacking(0.5))
    assert not [action for action in actions(early) if isinstance(action, Explain)]
    assert early.after is not None
    assert verdict(early, "Ready")[2] == "waiting for slurmctld to be created: 0 of 1 pods exist"
    asked = decide(lacking(5.0))
    assert [action.uid for action in actions(asked) if isinstance(action, Explain)] == ["uid-slurm-controller"]
    assert degraded(asked) == ""
    plan = decide(lacking(15.0, FORBIDDEN))
    assert (degraded(plan), ready(plan)) == (names.EVENT_FAILED_CREATE, False)
    for words in (
        "StatefulSet slurm/slurm-controller may not create its pods",
        FORBIDDEN,
        "pod-security.kubernetes.io",
    ):
        assert words in verdict(plan, "Degraded")[2]
    told = with_status(about.controller, plan)
    held = unheard(told, short, Refusals(SystemClock()))
    restarted = replace(about, controller=told, slurmctld=replace(about.slurmctld, missing_for=0.0, held=held))
    assert status(decide(restarted)) == {}, "what a new process has not read yet is no news"
    assert names.EVENT_FAILED_CREATE not in events(decide(restarted))
