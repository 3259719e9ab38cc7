"""`slurm-operator install` and `uninstall`: the CRDs and the operator itself, in any cluster."""

import argparse
import asyncio

import yaml

from slurm_operator.api import names
from slurm_operator.api.crd import render_crds
from slurm_operator.cli.manifests import IMAGE, NAME, operator_manifests
from slurm_operator.cli.types import Subparsers
from slurm_operator.cli.webhook_manifests import NAME as WEBHOOK
from slurm_operator.cli.webhook_manifests import WebhookOptions, webhook_manifests
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, load
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES
from slurm_operator.kube.manifests import Manifests
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.manager import run as run_loop

MANAGER = "slurm-operator-install"
GOODBYE_SECONDS = 90.0
"""How long the operator's namespace may take to go; its pods get half a minute to end."""


def add_command(subparsers: Subparsers) -> None:
    install = subparsers.add_parser("install", help="install the CRDs and the operator in a cluster")
    install.add_argument("--image", default=IMAGE, help=f"the operator's image (default {IMAGE})")
    install.add_argument(
        "--wait", type=float, default=120.0, metavar="SECONDS", help="how long to wait until it is ready"
    )
    install.add_argument(
        "--no-webhook",
        dest="webhook",
        action="store_false",
        help="leave the admission webhook out; the rules of the CRDs still hold",
    )
    install.set_defaults(run=run_install)
    uninstall = subparsers.add_parser("uninstall", help="remove the operator; clusters and their jobs go on running")
    uninstall.add_argument("--crds", action="store_true", help="remove the CRDs too, and with them every Slurm cluster")
    uninstall.set_defaults(run=run_uninstall)
    for parser in (install, uninstall):
        parser.add_argument("--kubeconfig", default="", help="file to reach the cluster with; default: as kubectl")
        parser.add_argument("--context", default="", help="context of the kubeconfig")
        parser.add_argument("--namespace", default=NAME, help=f"namespace of the operator (default {NAME})")


def run_install(options: argparse.Namespace) -> int:
    async def work() -> None:
        async with Client(load(options.kubeconfig, options.context)) as client:
            await install(client, options.namespace, options.image, webhook=options.webhook)
            await wait_ready(client, options.namespace, options.wait, webhook=options.webhook)

    run_loop(work())
    print(f"slurm-operator is ready in namespace {options.namespace}")
    return 0


def run_uninstall(options: argparse.Namespace) -> int:
    async def work() -> None:
        async with Client(load(options.kubeconfig, options.context)) as client:
            await uninstall(client, options.namespace, crds=options.crds)

    run_loop(work())
    print(
        "slurm-operator is removed" + (", and its CRDs" if options.crds else "; the CRDs and clusters are still there")
    )
    return 0


async def install(client: Client, namespace: str, image: str = IMAGE, *, webhook: bool = True) -> None:
    """CRDs first, and only on once the server knows them."""
    manifests = Manifests(client, MANAGER, namespace)
    crds = crd_manifests()
    await manifests.apply(crds)
    async with asyncio.timeout(60):
        for crd in crds:
            await _established(client, crd["metadata"]["name"])
    await manifests.apply(operator_manifests(namespace, image))
    if webhook:
        await manifests.apply(webhook_manifests(WebhookOptions(namespace=namespace, image=image)))


async def uninstall(client: Client, namespace: str, *, crds: bool = False) -> None:
    """The operator goes first, then the finalizers that only it would have removed."""
    manifests = Manifests(client, MANAGER, namespace)
    await manifests.delete([*operator_manifests(namespace), *webhook_manifests(WebhookOptions(namespace=namespace))])
    await _release_nodesets(client)
    if crds:
        await manifests.delete(crd_manifests())
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await _gone(client, namespace)
    except TimeoutError as error:
        hint = f"see: kubectl get namespace {namespace} -o yaml"
        raise UserError(f"namespace {namespace} was not gone within {GOODBYE_SECONDS:g} s", hint) from error


async def _gone(client: Client, namespace: str) -> None:
    """Until then nothing can be installed there again."""
    while True:
        try:
            await client.get(NAMESPACES, namespace)
        except NotFound:
            return
        await asyncio.sleep(0.5)


def crd_manifests() -> list[Manifest]:
    return [document for document in yaml.safe_load_all(render_crds()) if document]


async def wait_ready(client: Client, namespace: str, seconds: float, *, webhook: bool = True) -> None:
    """Returns when the Deployments are; else says what it waits for."""
    for name in (NAME, WEBHOOK) if webhook else (NAME,):
        try:
            async with asyncio.timeout(seconds):
                await _rolled_out(client, name, namespace)
        except TimeoutError as error:
            see = f"see: kubectl -n {namespace} describe pods"
            hint = f"{see}; the image is loaded with `slurm-operator local load-image`"
            raise UserError(f"Deployment {name} was not ready within {seconds:g} s", hint) from error


async def _rolled_out(client: Client, name: str, namespace: str) -> None:
    while True:
        found = await client.get(DEPLOYMENTS, name, namespace)
        current = found.status.observed_generation >= found.metadata.generation
        if current and found.status.updated_replicas == found.status.ready_replicas == found.spec.replicas:
            return
        await asyncio.sleep(0.5)


async def _established(client: Client, name: str) -> None:
    while True:
        condition = find_condition(
            (await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)).status.conditions or (), "Established"
        )
        if condition is not None and condition.is_true:
            return
        await asyncio.sleep(0.2)


async def _release_nodesets(client: Client) -> None:
    """Nobody is left to wait for their jobs; a finalizer that nobody removes would hold their namespace for ever."""
    try:
        found = await client.list(NODESETS)
    except NotFound:
        return
    for nodeset in found.items:
        finalizers = [name for name in nodeset.metadata.finalizers if name != names.FINALIZER_WORKERS]
        if len(finalizers) < len(nodeset.metadata.finalizers):
            patch = {"metadata": {"finalizers": finalizers, "uid": nodeset.metadata.uid}}
            await client.patch(NODESETS, nodeset.metadata.name, patch, nodeset.metadata.namespace)
