"""`install` and `uninstall`: what is there afterwards, and what a user reads when it does not work."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slurm_operator.api import KINDS, names
from slurm_operator.cli.install import crd_manifests, install, uninstall, wait_ready
from slurm_operator.cli.manifests import BUILD, NAME, build, cluster_rules, lease_rules, operator_manifests
from slurm_operator.cli.webhook_manifests import NAME as WEBHOOK
from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from tests.fakes.apiserver import FakeApiServer, Refuse, Writer
from tests.unit.cli.conftest import Command

STATUS = Writer("kubernetes", subresource="status")
PLACE = "slurm-operator"


@pytest.fixture(autouse=True)
async def kubernetes(server: FakeApiServer) -> AsyncIterator[None]:
    """Establishes definitions and rolls the operator out."""
    cluster = server.cluster

    async def run() -> None:
        while True:
            for crd in cluster.list(cluster.kind("CustomResourceDefinition")):
                made = {"conditions": [{"type": "Established", "status": "True"}]}
                cluster.patch(
                    cluster.kind("CustomResourceDefinition"),
                    crd["metadata"]["name"],
                    "",
                    {"status": made},
                    writer=STATUS,
                )
            for found in cluster.list(cluster.kind("Deployment"), PLACE):
                count = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
                status = {"observedGeneration": found["metadata"]["generation"], **count}
                name = found["metadata"]["name"]
                cluster.patch(cluster.kind("Deployment"), name, PLACE, {"status": status}, writer=STATUS)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def installed(server: FakeApiServer) -> set[str]:
    cluster = server.cluster
    kinds = (*PARTS, "CustomResourceDefinition", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    return {f"{kind}/{obj['metadata']['name']}" for kind in kinds for obj in cluster.list(cluster.kind(kind))}


PARTS = ("Deployment", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
OPERATOR = {f"{kind}/{NAME}" for kind in PARTS}
GUARD = {f"{kind}/{WEBHOOK}" for kind in (*PARTS, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")}
DEFINITIONS = {f"CustomResourceDefinition/{kind.plural}.{names.GROUP}" for kind in KINDS}


async def test_install_and_uninstall(
    server: FakeApiServer, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("install", "--image", "registry.example/operator:1") == 0
    assert "slurm-operator is ready in namespace slurm-operator" in capsys.readouterr().out
    assert installed(server) == OPERATOR | GUARD | DEFINITIONS
    deployment = server.cluster.get(server.cluster.kind("Deployment"), NAME, PLACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/operator:1"
    server.requests.clear()
    assert await command("install", "--image", "registry.example/operator:1") == 0
    assert await command("uninstall") == 0
    assert "the CRDs and clusters are still there" in capsys.readouterr().out
    assert installed(server) == DEFINITIONS
    assert await command("uninstall", "--crds") == 0
    assert "and its CRDs" in capsys.readouterr().out
    assert installed(server) == set()


async def test_the_webhook_can_be_left_out(server: FakeApiServer, command: Command) -> None:
    assert await command("install", "--no-webhook") == 0
    assert installed(server) == OPERATOR | DEFINITIONS


async def test_uninstalling_where_nothing_is_installed(server: FakeApiServer, client: Client) -> None:
    server.inject(Refuse(404), "list", "nodesets", times=None)
    await uninstall(client, PLACE, crds=True)


async def test_an_operator_that_does_not_get_ready_is_told(server: FakeApiServer, client: Client) -> None:
    await install(client, "elsewhere")
    with pytest.raises(UserError, match=r"not ready within 0\.1 s") as refusal:
        await wait_ready(client, "elsewhere", 0.1)
    assert "kubectl -n elsewhere describe pods" in refusal.value.hint


def test_definitions_come_with_the_program() -> None:
    assert [crd["spec"]["names"]["kind"] for crd in crd_manifests()] == [kind.name for kind in KINDS]


def test_pods_are_replaced_when_the_program_changes(tmp_path: Path) -> None:
    template = operator_manifests(PLACE)[-1]["spec"]["template"]
    assert template["metadata"]["annotations"] == {BUILD: build()}
    for name in ("one", "two", "one-again"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(name.split("-")[0])
    (tmp_path / "one-again" / "main.pyc").write_text("compiled")
    one, two, again = (build(tmp_path / name) for name in ("one", "two", "one-again"))
    assert one == again != two


def test_rights_are_spelled_out() -> None:
    """No wildcard, nothing on Nodes but looking, no right to escalate."""
    for rule in (*cluster_rules(), *lease_rules()):
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
    (nodes,) = (rule for rule in cluster_rules() if "nodes" in rule["resources"])
    assert nodes["verbs"] == ["get", "list", "watch"]


def test_the_operators_pod_has_no_privileges() -> None:
    deployment = operator_manifests(PLACE)[-1]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
