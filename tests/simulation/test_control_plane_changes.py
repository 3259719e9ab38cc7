"""The whole operator in memory: what users change, break and mend, and how it is told."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from slurm_operator import accounting, loginset
from slurm_operator.api import names
from slurm_operator.slurm.jwt import InvalidTokenError, verify
from slurm_operator.slurm.keys import KeyRing
from slurm_operator.slurm.known import Known
from tests.fakes.slurmrestd import FakeSlurm, FakeSlurmrestd, hang
from tests.simulation.control_plane import STATUS, World, example, keys, quick_host_keys, token, until, world

HERE = "slurm"
CLUSTER = (HERE, "slurm")
BACKBONE = ("Controller", "Accounting", "RestApi")


@pytest.fixture(autouse=True)
def host_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real RSA keys take seconds."""
    monkeypatch.setattr(loginset, "ssh_host_keys", quick_host_keys)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A control plane with its keys, and nobody who looks after it yet."""
    async with world() as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all([*example(*BACKBONE, "ConfigMap", "Secret"), token()], HERE)
        yield found


def message(here: World, kind: str, name: str = "slurm") -> str:
    return str(here.condition(kind, name, HERE, "Degraded").get("message", ""))


def told_once(here: World, kind: str, reason: str) -> bool:
    return here.events(HERE).count((kind, reason)) == 1


async def test_what_is_missing_is_told_and_heals_when_it_comes(here: World) -> None:
    """Secrets, ConfigMaps, Accounting and Controller: each by name, and no restart of the operator."""
    here.delete("Secret", "slurm-keys", HERE)
    here.delete("ConfigMap", "slurm-files", HERE)
    (books,) = example("Accounting")
    here.delete("Accounting", "slurm", HERE)
    async with here.operator():
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "SecretNotFound")
        await until(lambda: here.degraded("Token", "alice", HERE) == "SecretNotFound")
        assert "Secret slurm/slurm-keys" in message(here, "Controller")
        here.create(keys(here.slurms[CLUSTER]), HERE)
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "AccountingNotFound")
        here.create(books, HERE)
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "ConfigMapNotFound")
        here.create_all(example("ConfigMap"), HERE)
        await until(lambda: here.all_ready(HERE))
        for reason in ("SecretNotFound", "AccountingNotFound", "ConfigMapNotFound", "Ready"):
            await until(partial(told_once, here, "Controller", reason))
        assert here.events(HERE).count(("Controller", names.EVENT_CREATE_SUCCEEDED)) == 5


async def test_a_controller_that_comes_late(here: World) -> None:
    """scenario 183"""
    (controller,) = example("Controller")
    here.delete("Controller", "slurm", HERE)
    here.create_all(example("LoginSet"), HERE)
    async with here.operator():
        for kind, name in (("RestApi", "slurm"), ("LoginSet", "login")):
            await until(partial(told_once, here, kind, "ControllerRefFailed"))
            assert here.degraded(kind, name, HERE) == "ControllerRefFailed"
        assert here.find("Secret", "login-ssh-host-keys", HERE) is None
        here.create(controller, HERE)
        await until(lambda: here.all_ready(HERE))


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "StatefulSet"])
async def test_a_name_that_is_taken_is_never_taken_over(here: World, kind: str) -> None:
    name = "slurm-config" if kind == "ConfigMap" else "slurm-controller"
    version = "apps/v1" if kind == "StatefulSet" else "v1"
    theirs: dict[str, Any] = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    if kind == "StatefulSet":
        theirs["spec"] = {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [{"name": "a"}]}},
        }
    before = here.create(theirs, HERE)
    async with here.operator():
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "NameTaken")
        assert f"{kind} slurm/{name} was not made by us" in message(here, "Controller")
        assert "rename or delete it" in message(here, "Controller")
        assert here.get(kind, name, HERE)["metadata"].get("ownerReferences") is None
        assert here.uid(kind, name, HERE) == before["metadata"]["uid"]
        here.delete(kind, name, HERE)
        await until(lambda: here.ready("Controller", "slurm", HERE), 40)
        assert here.degraded("Controller", "slurm", HERE) == ""


async def test_what_workers_share_is_never_taken_over_either(here: World) -> None:
    here.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "slurm-workers-slurm"}}, HERE)
    here.create_all(example("NodeSet"), HERE)
    async with here.operator():
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "NameTaken")
        assert "Service slurm/slurm-workers-slurm was not made by us" in message(here, "Controller")
        here.delete("Service", "slurm-workers-slurm", HERE)
        await until(lambda: here.ready("Controller", "slurm", HERE), 40)
        assert here.get("Service", "slurm-workers-slurm", HERE)["metadata"]["labels"][names.LABEL_CLUSTER] == "slurm"


async def test_a_token_never_overwrites_a_secret_of_another(here: World) -> None:
    here.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bob-jwt-bob"}, "data": {"a": "Yg=="}}, HERE
    )
    here.create(token("bob"), HERE)
    async with here.operator():
        await until(lambda: here.degraded("Token", "bob", HERE) == "NameTaken")
        assert here.get("Secret", "bob-jwt-bob", HERE)["data"] == {"a": "Yg=="}
        here.delete("Secret", "bob-jwt-bob", HERE)
        await until(lambda: here.ready("Token", "bob", HERE), 40)


def stored(here: World, key: bytes) -> bool:
    """Whether alice's token was signed with this key."""
    found = here.find("Secret", "alice-jwt-alice", HERE)
    try:
        verify(b64decode(found["data"]["SLURM_JWT"]).decode() if found else "", key, here.slurms[CLUSTER].boot + 5)
    except InvalidTokenError:
        return False
    return True


async def test_a_new_jwt_key_reaches_everybody_at_once(here: World) -> None:
    """scenarios 161 and 186: tokens are signed anew, slurmctld restarts, and our own questions carry the new key."""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE) and isinstance(running.views.state(CLUSTER), Known))
        assert stored(here, here.slurms[CLUSTER].key)
        before = here.uid("Pod", "slurm-controller-0", HERE)
        fresh = b"f" * 32
        here.slurms[CLUSTER].key = fresh
        here.change("Secret", "slurm-keys", HERE, {"data": {"jwt.key": b64encode(fresh).decode()}})
        await until(lambda: stored(here, fresh))
        await until(lambda: here.uid("Pod", "slurm-controller-0", HERE) not in ("", before))
        asked = here.slurms[CLUSTER].count("GET nodes")
        await until(lambda: here.slurms[CLUSTER].count("GET nodes") > asked + 1)
        assert isinstance(running.views.state(CLUSTER), Known)


async def test_a_new_slurm_key_goes_round_in_three_steps_and_replaces_no_worker(here: World) -> None:
    """scenario 187"""
    here.create_all(example("NodeSet"), HERE)
    seen: list[tuple[str, ...]] = []

    def ring() -> tuple[str, ...]:
        """The keys that are believed, the one that signs in capitals."""
        found = KeyRing.read(b64decode(here.get("Secret", "slurm-keys-ring", HERE)["data"]["slurm.key"]))
        assert found is not None
        names_ = [chr(key[0]).upper() if key == found.signs else chr(key[0]) for key in found.keys]
        if not seen or seen[-1] != tuple(names_):
            seen.append(tuple(names_))
        return seen[-1]

    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE) and isinstance(running.views.state(CLUSTER), Known))
        assert ring() == ("S",)
        workers = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in here.all("Pod", HERE)}
        here.change("Secret", "slurm-keys", HERE, {"data": {"slurm.key": b64encode(b"n" * 32).decode()}})
        await until(lambda: ring() == ("N",), 40)
        await running.quiet()
        await until(lambda: here.all_ready(HERE))
    assert seen == [("S",), ("S", "n"), ("s", "N"), ("N",)]
    now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in here.all("Pod", HERE)}
    replaced = {name for name, uid in workers.items() if now[name] != uid}
    assert replaced == {"slurm-controller-0", "slurm-accounting-0"}


async def test_a_token_that_is_deleted_or_tampered_with_comes_back(here: World) -> None:
    async with here.operator():
        await until(lambda: here.ready("Token", "alice", HERE))
        here.delete("Secret", "alice-jwt-alice", HERE)
        await until(lambda: stored(here, here.slurms[CLUSTER].key))
        here.change("Secret", "alice-jwt-alice", HERE, {"data": {"SLURM_JWT": "Zm9yZ2Vk"}})
        await until(lambda: stored(here, here.slurms[CLUSTER].key))
        here.delete("Token", "alice", HERE)
        await until(lambda: here.find("Secret", "alice-jwt-alice", HERE) is None)


async def test_a_token_that_may_be_renewed_again(here: World) -> None:
    """From refresh: false, whose Secret cannot be changed, to refresh: true."""
    here.create(token("once", refresh=False, lifetime="1h"), HERE)
    async with here.operator():
        await until(lambda: here.ready("Token", "once", HERE))
        assert here.get("Secret", "once-jwt-once", HERE)["immutable"] is True
        here.change("Token", "once", HERE, {"spec": {"refresh": True, "lifetime": "2h"}})
        await until(lambda: "immutable" not in (here.find("Secret", "once-jwt-once", HERE) or {"immutable": True}))


async def test_a_configuration_in_place(here: World) -> None:
    """A change reaches the pod without a restart, and the status says when; a bad one reaches nobody."""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        before = here.uid("Pod", "slurm-controller-0", HERE)
        first = here.get("Controller", "slurm", HERE)["status"]["configHash"]
        here.change("ConfigMap", "slurm-files", HERE, {"data": {"gres.conf": "AutoDetect=off\n"}})

        def status() -> dict[str, str]:
            found: dict[str, str] = here.get("Controller", "slurm", HERE)["status"]
            return found

        await until(lambda: status()["configHash"] != first and status()["deliveredConfigHash"] != first)
        assert status()["configHash"] == status()["deliveredConfigHash"]
        good = here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"]
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": "SlurmctldPort=many\n"}})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "ConfigurationRejected")
        assert here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"] == good
        assert here.uid("Pod", "slurm-controller-0", HERE) == before


async def test_a_configuration_that_slurmctld_refuses_in_place_is_told_and_not_delivered(here: World) -> None:
    def status() -> dict[str, str]:
        found: dict[str, str] = here.get("Controller", "slurm", HERE)["status"]
        return found

    def delivered() -> bool:
        return status()["configHash"] == status().get("deliveredConfigHash")

    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE) and delivered())
        await running.quiet()
        assert told_once(here, "Controller", names.EVENT_CONFIGURATION_DELIVERED)
        before = status()["deliveredConfigHash"]
        extra = here.get("Controller", "slurm", HERE)["spec"]["extraConf"]
        here.refuse = 'refused {}: error: Bad value "BLA" for State'
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": f"{extra}MinJobAge=299\n"}})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "ConfigurationRefused")
        assert 'Bad value "BLA" for State' in message(here, "Controller")
        assert not here.ready("Controller", "slurm", HERE)
        assert status()["deliveredConfigHash"] == before != status()["configHash"]
        await until(partial(told_once, here, "Controller", "ConfigurationRefused"))
        here.refuse = ""
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": f"{extra}MinJobAge=298\n"}})
        await until(lambda: here.ready("Controller", "slurm", HERE) and delivered())
        assert here.degraded("Controller", "slurm", HERE) == ""
        assert status()["deliveredConfigHash"] != before


async def test_a_database_that_is_lost_and_found(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(accounting, "ASK_AGAIN_SECONDS", 0.1)
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE) and slurm.count("GET clusters/"))
        slurm.database_up = False
        await until(lambda: here.degraded("Accounting", "slurm", HERE) == "DatabaseLost")
        assert not here.ready("Accounting", "slurm", HERE)
        assert "slurm-mariadb:3306" in message(here, "Accounting")
        assert isinstance(running.views.state(CLUSTER), Known), "slurmctld works without its accounting"
        slurm.database_up = True
        await until(lambda: here.ready("Accounting", "slurm", HERE))
        assert here.degraded("Accounting", "slurm", HERE) == ""


async def test_a_lost_database_is_told_until_no_cluster_uses_it(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(accounting, "ASK_AGAIN_SECONDS", 0.1)
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        here.slurms[CLUSTER].database_up = False
        await until(lambda: here.degraded("Accounting", "slurm", HERE) == "DatabaseLost")
        here.delete("RestApi", "slurm", HERE)
        await until(lambda: not isinstance(running.views.state(CLUSTER), Known))
        await running.quiet()
        assert here.degraded("Accounting", "slurm", HERE) == "DatabaseLost", "no answer is no good news"
        here.delete("Controller", "slurm", HERE)
        await until(lambda: here.ready("Accounting", "slurm", HERE))


async def test_a_restart_instead(here: World) -> None:
    """scenario 178, without in-place reconfiguration: one restart for one change."""
    here.change("Controller", "slurm", HERE, {"spec": {"inplaceReconfigure": False}})
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        before = here.uid("Pod", "slurm-controller-0", HERE)
        here.change("ConfigMap", "slurm-files", HERE, {"data": {"gres.conf": "AutoDetect=off\n"}})
        await until(lambda: here.uid("Pod", "slurm-controller-0", HERE) not in ("", before))
        await running.quiet()
        status = here.get("Controller", "slurm", HERE)["status"]
        assert status["configHash"] == status["deliveredConfigHash"]


async def test_an_old_stateful_set_is_made_anew_below_a_running_slurmctld(here: World) -> None:
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
    old = here.get("StatefulSet", "slurm-controller", HERE)
    kind = here.cluster.kind("StatefulSet")
    here.cluster.storage.put(kind, old | {"spec": old["spec"] | {"podManagementPolicy": "OrderedReady"}})
    pod = here.uid("Pod", "slurm-controller-0", HERE)
    async with here.operator() as running:
        await until(lambda: here.uid("StatefulSet", "slurm-controller", HERE) not in ("", old["metadata"]["uid"]))
        await running.quiet()
        assert here.get("StatefulSet", "slurm-controller", HERE)["spec"]["podManagementPolicy"] == "Parallel"
        assert here.uid("Pod", "slurm-controller-0", HERE) == pod
        assert here.ready("Controller", "slurm", HERE)


async def test_a_node_that_goes_silent_is_named_and_nothing_is_deleted(here: World) -> None:
    def heard(status: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    nodes = here.cluster.kind("Node")
    here.cluster.create(nodes, {"metadata": {"name": "k8s-1"}, **heard("True")})
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        pod = here.get("Pod", "slurm-controller-0", HERE)
        here.cluster.bind("slurm-controller-0", HERE, "k8s-1")
        await running.quiet()
        here.server.requests.clear()
        here.cluster.patch(nodes, "k8s-1", "", heard("Unknown"), writer=STATUS)
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "NodeLost")
        assert "k8s-1" in message(here, "Controller")
        assert not [line for line in here.server.writes if line.verb == "delete"]
        assert here.uid("Pod", "slurm-controller-0", HERE) == pod["metadata"]["uid"]
        here.cluster.patch(nodes, "k8s-1", "", heard("True"), writer=STATUS)
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "")


async def test_monitors_come_and_go_where_they_are_known(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """scenario 171: also when Prometheus' operator is installed while the operator runs, and when it is removed."""
    for name in ("DISCOVERY_SECONDS", "CHECK_SECONDS"):
        monkeypatch.setattr(f"slurm_operator.runtime.optional.{name}", 0.05)
    monitors = here.cluster.kind("ServiceMonitor")
    here.cluster.kinds.remove(monitors)
    watched = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
    here.change("Controller", "slurm", HERE, {"spec": watched})
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        here.cluster.kinds.add(monitors)
        await until(lambda: here.find("ServiceMonitor", "slurm-controller", HERE))
        here.change("Controller", "slurm", HERE, {"spec": {"metrics": {"enabled": False}}})
        await until(lambda: here.find("ServiceMonitor", "slurm-controller", HERE) is None)
        here.cluster.kinds.remove(monitors)
        here.server.cut_watches()
        here.change("Controller", "slurm", HERE, {"spec": watched})
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        assert here.degraded("Controller", "slurm", HERE) == ""
        here.cluster.kinds.add(monitors)
        await until(lambda: here.find("ServiceMonitor", "slurm-controller", HERE))


async def test_from_internal_to_external_nothing_is_left_behind(here: World) -> None:
    """scenario 188: slurmctld and slurmdbd move out; slurm.conf points where they are."""
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        elsewhere = {"external": True, "externalConfig": {"host": "dbd.example.com", "port": 7819}}
        here.change("Accounting", "slurm", HERE, {"spec": elsewhere})
        await until(lambda: here.find("StatefulSet", "slurm-accounting", HERE) is None)

        def conf() -> str:
            return str(here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"])

        await until(lambda: "dbd.example.com" in conf() and "7819" in conf())
        elsewhere = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 7817}}
        here.change("Controller", "slurm", HERE, {"spec": elsewhere})
        await until(lambda: here.find("StatefulSet", "slurm-controller", HERE) is None)
        await until(lambda: here.find("Service", "slurm-controller", HERE) is None)
        await until(lambda: "ctl.example.com" in conf())
        await until(lambda: here.all_ready(HERE))
        assert here.find("Deployment", "slurm-restapi", HERE) is not None


# Whom the operator asks


def restapi(name: str) -> dict[str, Any]:
    (found,) = example("RestApi")
    return {**found, "metadata": {"name": name}}


async def test_the_oldest_rest_api_that_stays_is_asked(here: World) -> None:
    """scenario 160: one on its way out is skipped; without any, or without the Controller, nobody is asked."""
    async with FakeSlurmrestd(FakeSlurm(asyncio.get_running_loop().time, key=here.slurms[CLUSTER].key)) as second:
        here.urls[HERE, "spare"] = second.url
        async with here.operator() as running:
            await until(lambda: isinstance(running.views.state(CLUSTER), Known))
            here.create(restapi("spare"), HERE)
            here.change("RestApi", "slurm", HERE, {"metadata": {"finalizers": ["example.com/hold"]}})
            await until(lambda: here.find("Deployment", "spare-restapi", HERE))
            assert second.slurm.calls == []
            here.delete("RestApi", "slurm", HERE)
            await until(lambda: second.slurm.calls)
            here.delete("RestApi", "spare", HERE)
            await until(lambda: not running.views.clusters)
            here.create(restapi("spare"), HERE)
            await until(lambda: running.views.clusters)
            here.delete("Controller", "slurm", HERE)
            await until(lambda: not running.views.clusters)


async def test_a_rest_api_that_moves_to_another_cluster(here: World) -> None:
    async with here.operator() as running:
        await until(lambda: CLUSTER in running.views.clusters)
        (controller,) = example("Controller")
        here.urls[HERE, "other"] = here.urls[CLUSTER]
        here.create({**controller, "metadata": {"name": "other"}}, HERE)
        here.change("RestApi", "slurm", HERE, {"spec": {"controllerRef": {"name": "other"}}})
        await until(lambda: list(running.views.clusters) == [(HERE, "other")])
        await until(lambda: "other-config" in str(here.find("Deployment", "slurm-restapi", HERE)))


# Several clusters

TWINS = (("blue", "slurm"), ("green", "slurm"))


async def test_clusters_of_one_name_in_two_namespaces_do_not_mix() -> None:
    """scenario 170: children, workers, keys and questions stay at home."""
    async with world(*TWINS) as both:
        for place, _ in TWINS:
            both.create(keys(both.slurms[place, "slurm"]), place)
            both.create_all([*example(), token()], place)
        both.change("NodeSet", "small", "green", {"spec": {"replicas": 1}})
        async with both.operator() as running:
            await until(lambda: both.all_ready("blue") and both.all_ready("green"), 40)
            await running.quiet()
            assert sorted(both.slurms["blue", "slurm"].nodes) == ["big-0", "small-0", "small-1"]
            assert sorted(both.slurms["green", "slurm"].nodes) == ["big-0", "small-0"]
            for place, _ in TWINS:
                conf = both.get("ConfigMap", "slurm-config", place)["data"]["slurm.conf"]
                assert f"ClusterName={place}_slurm" in conf
            left = len(both.all("Secret", "blue"))
            for kind in ("LoginSet", "RestApi", "Accounting", "Controller", "Token"):
                for obj in both.all(kind, "green"):
                    both.delete(kind, obj["metadata"]["name"], "green")
            await until(lambda: list(running.views.clusters) == [("blue", "slurm")])
            await running.quiet()
            assert both.all_ready("blue")
            assert len(both.all("Secret", "blue")) == left


async def test_a_sick_slurmrestd_stalls_nobody_else() -> None:
    """scenarios 165 and 169: one hangs; the other cluster comes up, and so does all of its own that needs no Slurm."""
    async with world(*TWINS) as both:
        both.slurms["blue", "slurm"].fault = hang()
        for place, _ in TWINS:
            both.create(keys(both.slurms[place, "slurm"]), place)
            both.create_all([*example(), token()], place)
        async with both.operator() as running:
            await until(lambda: both.all_ready("green"), 20)
            assert isinstance(running.views.state(("green", "slurm")), Known)
            await until(lambda: len(both.all("Pod", "blue")) == len(both.all("Pod", "green")))
            for kind in (*BACKBONE, "LoginSet", "Token"):
                for obj in both.all(kind, "blue"):
                    await until(partial(both.ready, kind, obj["metadata"]["name"], "blue"))
