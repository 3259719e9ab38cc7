"""What the control plane's builders promise: names, ports, hashes, and where a user's wishes go."""

from base64 import b64decode
from typing import Any

import pytest

from slurm_operator.api import Accounting, Controller, names
from slurm_operator.desired import dns, endpoints, metadata
from slurm_operator.desired.accounting import AccountingFacts, accounting_objects
from slurm_operator.desired.config import ControllerFacts, configuration, defined_partitions, generated_files
from slurm_operator.desired.controller import controller_objects, service_monitor
from slurm_operator.desired.loginset import LoginSetFacts, loginset_objects
from slurm_operator.desired.restapi import RestApiFacts, restapi_objects
from slurm_operator.desired.token import token_secret
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.lint import errors, lint
from slurm_operator.slurm.conf.parser import parse
from slurm_operator.slurm.conf.writer import NodeGroup
from tests.unit.desired import examples
from tests.unit.desired.examples import login_pod, make

HA = "ha: {enabled: true, backups: 2}\npersistence: {enabled: true, existingClaim: shared}\n"
EXTERNAL = "external: true\nexternalConfig: {host: dbd.example.com, port: 7819}\n"


def by_kind(objects: list[Manifest], kind: str, name: str = "") -> Any:
    return next(o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"]))


def built(controller: Controller, **facts: Any) -> list[Manifest]:
    return controller_objects(controller, ControllerFacts(**facts))


def workload(objects: list[Manifest]) -> Any:
    return next(o for o in objects if o["kind"] in ("StatefulSet", "Deployment"))["spec"]


def main_container(objects: list[Manifest]) -> Any:
    return workload(objects)["template"]["spec"]["containers"][0]


def pod_annotations(objects: list[Manifest]) -> dict[str, str]:
    annotations: dict[str, str] = workload(objects)["template"]["metadata"]["annotations"]
    return annotations


class TestController:
    def test_children(self) -> None:
        """scenario 171"""
        found = [(o["kind"], o["metadata"]["name"]) for o in built(examples.controller())]
        assert found == [
            ("Service", "slurm-controller-internal"),
            ("Service", "slurm-logins-slurm"),
            ("Service", "slurm-controller"),
            ("ConfigMap", "slurm-config"),
            ("StatefulSet", "slurm-controller"),
        ]

    def test_the_worked_example_passes_the_lint(self) -> None:
        files = configuration(examples.controller(), ControllerFacts(nodesets=(examples.nodeset(),)))
        assert errors(lint(files)) == []
        assert list(files) == ["slurm.conf", "cgroup.conf"]

    def test_a_single_slurmctld_is_reachable_without_the_operator(self) -> None:
        objects = built(examples.controller())
        wanted = by_kind(objects, "Service", "slurm-controller")["spec"]["selector"]
        assert wanted[names.LABEL_ACTIVE] == "true"
        assert wanted.items() <= workload(objects)["template"]["metadata"]["labels"].items()

    def test_with_standbys_readiness_decides_who_is_reachable(self) -> None:
        """scenario 173"""
        objects = built(examples.controller(HA))
        service = by_kind(objects, "Service", "slurm-controller")["spec"]
        spec = workload(objects)
        assert names.LABEL_ACTIVE not in service["selector"]
        assert names.LABEL_ACTIVE not in spec["template"]["metadata"]["labels"]
        assert main_container(objects)["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert (spec["replicas"], spec["updateStrategy"]["type"]) == (3, "OnDelete")
        assert spec["podManagementPolicy"] == workload(built(examples.controller()))["podManagementPolicy"], (
            "it can never be changed, so standbys could not be added later"
        )
        assert "volumeClaimTemplates" not in spec
        hosts = parse(by_kind(objects, "ConfigMap")["data"]["slurm.conf"]).all("SlurmctldHost")
        assert [line.value.partition("(")[0] for line in hosts] == [f"slurm-controller-{i}" for i in range(3)]

    def test_only_standbys_keep_apart(self) -> None:
        assert "affinity" not in workload(built(examples.controller()))["template"]["spec"]
        assert "podAntiAffinity" in workload(built(examples.controller(HA)))["template"]["spec"]["affinity"]

    @pytest.mark.parametrize(
        "persistence", ["{enabled: false}", "{enabled: true}", "{existingClaim: x, enabled: false}"]
    )
    def test_standbys_need_shared_storage(self, persistence: str) -> None:
        """scenario 173"""
        with pytest.raises(ValueError, match="ReadWriteMany"):
            built(examples.controller(f"ha: {{enabled: true}}\npersistence: {persistence}\n"))

    def test_storage(self) -> None:
        template = workload(built(examples.controller()))["volumeClaimTemplates"][0]
        assert template["metadata"]["name"] == "statesave"
        assert template["spec"]["resources"] == {"requests": {"storage": "4Gi"}}
        memory = workload(built(examples.controller("persistence: {enabled: false}\n")))
        assert "volumeClaimTemplates" not in memory
        assert {"name": "statesave", "emptyDir": {}} in memory["template"]["spec"]["volumes"]

    def test_storage_has_a_default_size_and_the_live_claims_are_kept(self) -> None:
        bare = examples.controller("persistence: {enabled: true}\n")
        assert workload(built(bare))["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]
        live = ({"metadata": {"name": "statesave"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}},)
        assert workload(built(bare, claim_templates=live))["volumeClaimTemplates"] == list(live)

    def test_the_users_port_is_served_beside_the_usual_one(self) -> None:
        controller = examples.controller("service: {port: 7000, nodePort: 30817, spec: {type: NodePort}}\n")
        spec = by_kind(built(controller), "Service", "slurm-controller")["spec"]
        assert [(p["name"], p["port"], p.get("nodePort")) for p in spec["ports"]] == [
            ("slurmctld", 7000, 30817),
            ("slurmctld-6817", 6817, None),
        ]
        assert spec["type"] == "NodePort"
        assert endpoints.conf_server(controller) == "slurm-controller.slurm:6817"

    def test_external_ips_are_dropped_and_clashing_ports_refused(self) -> None:
        dropped = examples.controller("service: {spec: {externalIPs: [1.2.3.4], loadBalancerIP: null}}\n")
        assert "externalIPs" not in by_kind(built(dropped), "Service", "slurm-controller")["spec"]
        clash = examples.controller("service: {spec: {ports: [{name: x, port: 6817}]}}\n")
        with pytest.raises(ValueError, match="6817"):
            built(clash)

    def test_a_change_of_configuration_restarts_only_when_not_applied_in_place(self) -> None:
        """scenario 178"""
        other = {"nodesets": (examples.nodeset("partition: {enabled: true}\n"),)}
        restart, inplace = examples.controller(), examples.controller("inplaceReconfigure: true\n")
        assert pod_annotations(built(restart)) != pod_annotations(built(restart, **other))
        assert pod_annotations(built(inplace)) == pod_annotations(built(inplace, **other))
        sidecars = [c["name"] for c in workload(built(inplace))["template"]["spec"]["initContainers"]]
        assert sidecars == ["reconfigure", "logfile"]

    def test_a_change_in_a_users_file_restarts_too(self) -> None:
        controller = examples.controller("configFileRefs: [{name: extra}]\n")
        one = built(controller, config_maps={"extra": {"gres.conf": "AutoDetect=off"}})
        two = built(controller, config_maps={"extra": {"gres.conf": "AutoDetect=nvidia"}})
        assert pod_annotations(one) != pod_annotations(two)

    def test_key_changes_restart(self) -> None:
        controller = examples.controller("inplaceReconfigure: true\n")
        assert pod_annotations(built(controller)) != pod_annotations(built(controller, slurm_key_hash="x"))
        assert pod_annotations(built(controller)) != pod_annotations(built(controller, jwt_key_hash="x"))

    def test_a_users_cgroup_conf_replaces_ours(self) -> None:
        controller = examples.controller("configFileRefs: [{name: extra}]\n")
        facts = ControllerFacts(config_maps={"extra": {"cgroup.conf": "CgroupPlugin=disabled\n"}})
        assert list(generated_files(controller, facts)) == ["slurm.conf"]
        assert configuration(controller, facts)["cgroup.conf"] == "CgroupPlugin=disabled\n"

    @pytest.mark.parametrize("file", ["slurm.conf", "slurmdbd.conf", "jwt.key", "slurm.jwks", "same.sh"])
    def test_a_users_file_never_hides_another(self, file: str) -> None:
        controller = examples.controller("configFileRefs: [{name: a}, {name: b}]\n")
        facts = ControllerFacts(config_maps={"a": {"same.sh": ""}, "b": {file: ""}})
        with pytest.raises(ValueError, match=f"ConfigMap b: {file}"):
            configuration(controller, facts)

    def test_scripts_of_all_references_are_pooled_and_sorted(self) -> None:
        controller = examples.controller(
            "prologScriptRefs: [{name: b}, {name: a}]\nepilogSlurmctldScriptRefs: [{name: c}]\n"
        )
        maps = {"a": {"20.sh": ""}, "b": {"10.sh": "", "30.sh": ""}, "c": {"e.sh": ""}}
        conf = parse(generated_files(controller, ControllerFacts(config_maps=maps))["slurm.conf"])
        assert [line.value for line in conf.all("Prolog")] == ["10.sh", "20.sh", "30.sh"]
        assert [line.value for line in conf.all("EpilogSlurmctld")] == ["/etc/slurm/e.sh"]

    def test_nodesets_are_sorted_and_a_shared_name_appears_once(self) -> None:
        """scenario 177"""
        first = examples.nodeset("partition: {enabled: true, config: MaxTime=1}\n", name="b")
        second = examples.nodeset(name="a")
        other = make(type(first), "c", {"controllerRef": {"name": "slurm"}})
        facts = ControllerFacts(nodesets=(other, first, second), retired=(NodeGroup("old", ""), NodeGroup("c", "")))
        conf = parse(generated_files(examples.controller("extraConf: ''\n"), facts)["slurm.conf"])
        assert [line.value for line in conf.all("NodeSet")] == ["slinky", "c", "old"]
        assert [str(line) for line in conf.all("PartitionName")] == [
            "PartitionName=slinky Nodes=slinky MaxTime=1",
            "PartitionName=c Nodes=c",
            "PartitionName=old Nodes=old",
        ]

    def test_a_kept_group_does_not_change_the_order_in_force(self) -> None:
        nodesets = tuple(examples.nodeset(f"template: {{spec: {{hostname: {name}}}}}\n", name=name) for name in "bd")
        standing = ("a", "d", "c", "b")
        facts = ControllerFacts(nodesets=nodesets, retired=(NodeGroup("a", ""), NodeGroup("c", "")), standing=standing)
        conf = parse(generated_files(examples.controller(), facts)["slurm.conf"])
        assert tuple(line.value for line in conf.all("NodeSet")) == standing

    def test_partitions_of_the_administrator_are_found_in_included_files_too(self) -> None:
        controller = examples.controller(
            "extraConf: |\n  PartitionName=mine Nodes=ALL\n  Include more.conf\nconfigFileRefs: [{name: files}]\n"
        )
        maps = {"files": {"more.conf": "PartitionName=more Nodes=ALL\n"}}
        assert defined_partitions(controller, maps) == {"mine", "more"}

    def test_room_for_nodes_follows_the_workers_and_stays(self) -> None:
        many = make(type(examples.nodeset()), "many", {"controllerRef": {"name": "slurm"}, "replicas": 5000})
        grown = generated_files(examples.controller(), ControllerFacts(nodesets=(many,)))["slurm.conf"]
        assert parse(grown).get("MaxNodeCount") == "16384"
        later = generated_files(examples.controller(), ControllerFacts(max_node_count=16384))["slurm.conf"]
        assert parse(later).get("MaxNodeCount") == "16384"

    def test_an_external_controller_is_only_its_configuration(self) -> None:
        """scenario 188"""
        objects = built(examples.controller(EXTERNAL + "metrics: {enabled: true, serviceMonitor: {enabled: true}}\n"))
        assert [o["kind"] for o in objects] == ["ConfigMap"]
        conf = parse(objects[0]["data"]["slurm.conf"])
        assert (conf.get("SlurmctldHost"), conf.get("SlurmctldPort")) == ("dbd.example.com", "7819")
        assert service_monitor(examples.controller(EXTERNAL)) is None

    def test_the_service_monitor_selects_one_service(self) -> None:
        """scenario 171"""
        controller = examples.controller("metrics: {enabled: true, serviceMonitor: {enabled: true, labels: {a: b}}}\n")
        monitor = service_monitor(controller)
        assert monitor is not None
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = [o for o in built(controller) if o["kind"] == "Service"]
        assert [s["metadata"]["name"] for s in services if wanted <= s["metadata"]["labels"].items()] == [
            "slurm-controller"
        ]
        assert service_monitor(examples.controller("metrics: {enabled: true}\n")) is None

    def test_a_container_without_an_image_is_named(self) -> None:
        with pytest.raises(ValueError, match="slurmctld has no image"):
            built(examples.controller("slurmctld: {}\n"))

    def test_root_for_the_whole_pod_is_root_for_slurmctld(self) -> None:
        objects = built(examples.controller("template: {spec: {securityContext: {runAsUser: 0}}}\n"))
        assert workload(objects)["template"]["spec"]["securityContext"]["runAsNonRoot"] is False
        assert main_container(objects)["securityContext"] == {"runAsGroup": 401}


class TestMetadata:
    META: dict[str, Any] = {
        "labels": {"team": "hpc"},
        "annotations": {
            "note": "x",
            names.ANNOTATION_LAST_APPLIED: "{}",
            "argocd.argoproj.io/tracking-id": "app:slurm",
            "meta.helm.sh/release-name": "slurm",
        },
    }

    def test_children_inherit_labels_and_a_users_annotations(self) -> None:
        for manifest in built(examples.controller(**self.META)):
            assert manifest["metadata"]["labels"]["team"] == "hpc"
            assert manifest["metadata"]["annotations"] == {"note": "x"}

    def test_notes_on_the_resource_never_reach_pods(self) -> None:
        objects = built(examples.controller(**self.META))
        template = workload(objects)["template"]["metadata"]
        assert template["labels"]["team"] == "hpc"
        assert all(key.startswith(("slinky", "kubectl.kubernetes.io/default")) for key in template["annotations"])

    def test_ours_win_over_the_users_and_theirs_over_the_resources(self) -> None:
        extra = "template: {metadata: {labels: {team: ml, app.kubernetes.io/name: x}, annotations: {a: b}}}\n"
        template = workload(built(examples.controller(extra, **self.META)))["template"]["metadata"]
        assert template["labels"]["team"] == "ml"
        assert template["labels"]["app.kubernetes.io/name"] == "slurmctld"
        assert template["annotations"]["a"] == "b"

    def test_hashes(self) -> None:
        """scenario 17"""
        assert metadata.content_hash({}) == ""
        assert metadata.content_hash({"b": "2", "a": b"1"}) == metadata.content_hash({"a": "1", "b": "2"})
        assert metadata.text_hash(b"foo") == "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

    @pytest.mark.parametrize(
        ("resolver", "domain"),
        [
            ("", "cluster.local"),
            ("nameserver 10.0.0.10\nsearch ns.svc.foo.bar svc.foo.bar foo.bar\n", "foo.bar"),
            ("search svc.foo.bar\n", "foo.bar"),
            ("search example.com mysvc.example.com\n", "cluster.local"),
            ("search svc.\n", "cluster.local"),
            ("# search svc.foo.bar\n", "cluster.local"),
        ],
    )
    def test_cluster_domain(self, resolver: str, domain: str) -> None:
        """scenario 16"""
        assert dns.cluster_domain(resolver) == domain


class TestAccounting:
    def test_children_and_configuration(self) -> None:
        objects = accounting_objects(examples.accounting(), AccountingFacts(password="p#ss word"))
        assert [(o["kind"], o["metadata"]["name"]) for o in objects] == [
            ("Service", "slurm-accounting"),
            ("Secret", "slurm-accounting"),
            ("StatefulSet", "slurm-accounting"),
        ]
        conf = parse(b64decode(objects[1]["data"]["slurmdbd.conf"]).decode())
        assert (conf.get("DbdHost"), conf.get("StoragePass")) == ("slurm-accounting-0", "p#ss word")

    def test_template_labels_reach_the_pod(self) -> None:
        objects = accounting_objects(examples.accounting(), AccountingFacts(password="x"))
        assert workload(objects)["template"]["metadata"]["labels"]["team"] == "hpc"

    def test_a_new_password_restarts(self) -> None:
        one, two = (accounting_objects(examples.accounting(), AccountingFacts(password=p)) for p in ("a", "b"))
        assert pod_annotations(one) != pod_annotations(two)

    def test_external_accounting_is_really_used(self) -> None:
        external = make(Accounting, "acct", EXTERNAL)
        assert accounting_objects(external, AccountingFacts(password="")) == []
        conf = parse(generated_files(examples.controller(), ControllerFacts(accounting=external))["slurm.conf"])
        assert conf.get("AccountingStorageHost") == "dbd.example.com"
        assert conf.get("AccountingStoragePort") == "7819"

    def test_the_port_of_its_service_is_used(self) -> None:
        accounting = examples.accounting("service: {port: 7000}\n")
        conf = parse(generated_files(examples.controller(), ControllerFacts(accounting=accounting))["slurm.conf"])
        assert conf.get("AccountingStoragePort") == "7000"

    def test_no_database_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="storageConfig"):
            accounting_objects(make(Accounting, "a", {}), AccountingFacts(password=""))


class TestRestApi:
    def test_plugins_and_arguments(self) -> None:
        """scenario 182"""
        plain = restapi_objects(examples.restapi(), RestApiFacts(controller=examples.controller()))
        assert main_container(plain)["args"] == ["-s", "openapi/slurmctld", "-vv", "0.0.0.0:6820"]
        accounted = examples.controller("accountingRef: {name: slurm}\n")
        objects = restapi_objects(examples.restapi(), RestApiFacts(controller=accounted))
        assert main_container(objects)["args"] == ["-vv", "0.0.0.0:6820"]

    def test_memory_stays_small(self) -> None:
        objects = restapi_objects(examples.restapi(), RestApiFacts(controller=examples.controller()))
        assert {"name": "MALLOC_ARENA_MAX", "value": "1"} in main_container(objects)["env"]

    def test_it_follows_the_configuration(self) -> None:
        """scenario 182"""
        facts = [RestApiFacts(controller=examples.controller(), slurm_conf_hash=conf) for conf in ("a", "b")]
        seen = [tuple(sorted(pod_annotations(restapi_objects(examples.restapi(), fact)).items())) for fact in facts]
        assert len(set(seen)) == 2

    def test_service(self) -> None:
        """scenario 182"""
        restapi = examples.restapi("service: {port: 80, nodePort: 30080, spec: {externalIPs: [1.1.1.1]}}\n")
        spec = restapi_objects(restapi, RestApiFacts(controller=examples.controller()))[0]["spec"]
        assert "externalIPs" not in spec
        assert spec["ports"][0]["nodePort"] == 30080
        assert endpoints.slurmrestd(restapi).port == 80


class TestLoginSet:
    def objects(self, extra: str = "", **facts: Any) -> list[Manifest]:
        return loginset_objects(examples.loginset(extra), LoginSetFacts(controller=examples.controller(), **facts))

    def test_it_asks_the_right_slurmctld(self) -> None:
        env = {"name": "SACKD_OPTIONS", "value": "--conf-server slurm-controller.slurm:6817"}
        assert main_container(self.objects())["env"] == [env]
        external = examples.controller(EXTERNAL)
        objects = loginset_objects(examples.loginset(), LoginSetFacts(controller=external))
        assert main_container(objects)["env"][0]["value"] == "--conf-server dbd.example.com:7819"

    def test_worker_names_resolve_bare(self) -> None:
        spec = workload(self.objects(domain="example.org"))["template"]["spec"]
        assert spec["dnsConfig"]["searches"] == ["slurm-workers-slurm.slurm.svc.example.org"]

    def test_slurmctld_finds_those_who_wait_for_it_by_their_bare_names(self) -> None:
        long = f"{'login-' * 10}zz"
        pods = (
            login_pod("login-b", "10.0.0.2"),
            login_pod(f"{long}-abc", "10.0.0.1"),
            login_pod("not-yet", ""),
            login_pod("over", "10.0.0.4", "Failed"),
            login_pod("login-e", "fd00::1"),
        )
        four, six = (o for o in self.objects(pods=pods) if o["kind"] == "EndpointSlice")
        assert (four["addressType"], six["addressType"]) == ("IPv4", "IPv6")
        assert four["endpoints"] == [
            {"addresses": ["10.0.0.2"], "hostname": "login-b"},
            {"addresses": ["10.0.0.1"], "hostname": long},
        ]
        assert six["endpoints"] == [{"addresses": ["fd00::1"], "hostname": "login-e"}]
        service = next(o for o in built(examples.controller()) if o["metadata"]["name"] == "slurm-logins-slurm")
        assert four["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
        assert "selector" not in service["spec"]
        spec = workload(built(examples.controller(), domain="example.org"))["template"]["spec"]
        assert spec["dnsConfig"]["searches"] == [
            "slurm-workers-slurm.slurm.svc.example.org",
            "slurm-logins-slurm.slurm.svc.example.org",
        ]

    def test_a_slurmctld_elsewhere_is_not_told_our_names(self) -> None:
        facts = LoginSetFacts(controller=examples.controller(EXTERNAL), pods=(login_pod("login-b", "10.0.0.2"),))
        assert not [o for o in loginset_objects(examples.loginset(), facts) if o["kind"] == "EndpointSlice"]

    def test_what_only_a_new_pod_can_read_makes_new_pods(self) -> None:
        """scenario 183"""
        base = pod_annotations(self.objects())
        for changed in (
            self.objects(sssd_conf=b"x"),
            self.objects(host_keys_hash="x"),
            self.objects("extraSshdConfig: Port 22\n"),
            self.objects("rootSshAuthorizedKeys: ''\n"),
        ):
            assert pod_annotations(changed) != base

    def test_a_port_named_login_is_the_one(self) -> None:
        extra = "login: {image: x, ports: [{name: login, containerPort: 2222}]}\n"
        ports = main_container(self.objects(extra))["ports"]
        assert ports == [{"name": "login", "containerPort": 2222, "protocol": "TCP"}]

    def test_scale_to_zero_and_strategy(self) -> None:
        spec = workload(self.objects("replicas: 0\nstrategy: {type: Recreate}\n"))
        assert (spec["replicas"], spec["strategy"]) == (0, {"type": "Recreate"})
        assert "strategy" not in workload(self.objects())


class TestToken:
    def test_the_secret_belongs_to_the_token(self) -> None:
        secret = token_secret(examples.token(), "a.b.c")
        assert secret["metadata"]["name"] == "alice-jwt-alice"
        assert secret["metadata"]["ownerReferences"][0]["kind"] == "Token"
        assert b64decode(secret["data"]["SLURM_JWT"]) == b"a.b.c"
        assert "immutable" not in secret

    def test_a_token_without_refresh_is_final(self) -> None:
        """scenario 184"""
        assert token_secret(examples.token("refresh: false\n"), "x")["immutable"] is True
