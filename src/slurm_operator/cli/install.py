"""`slurm-operator install` and `uninstall`: the CRDs and the operator itself, in any cluster."""

import argparse
import asyncio
from collections.abc import Sequence

import yaml

from slurm_operator.api import names
from slurm_operator.api.crd import render_crds
from slurm_operator.cli.leftovers import delete_shared, delete_workers, free_workers
from slurm_operator.cli.manifests import IMAGE, NAME, operator_manifests
from slurm_operator.cli.release import HeldNodeSet, all_nodesets, leaves_workers, refuse_busy, release
from slurm_operator.cli.types import Subparsers
from slurm_operator.cli.webhook_manifests import NAME as WEBHOOK
from slurm_operator.cli.webhook_manifests import WebhookOptions, webhook_manifests
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, load
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES, PODS
from slurm_operator.kube.manifests import Manifests
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.manager import run as run_loop

MANAGER = "slurm-operator-install"
GOODBYE_SECONDS = 90.0
"""How long the operator's pods, and then its namespace, may take to go; pods get half a minute to end."""
BUSY_HINT = (
    "wait until the jobs have ended, or cancel them with scancel, and try again; "
    "--force removes these workers and ends their jobs"
)


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
    uninstall.add_argument(
        "--force",
        action="store_true",
        help="take the finalizers off all NodeSets, even if jobs run on workers that are then removed",
    )
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
            kept.extend(await uninstall(client, options.namespace, crds=options.crds, force=options.force))

    kept: list[HeldNodeSet] = []
    run_loop(work())
    print(
        "slurm-operator is removed" + (", and its CRDs" if options.crds else "; the CRDs and clusters are still there")
    )
    if kept:
        print(
            f"A deletion of these NodeSets, or of their namespace, waits for an operator that ends no job: "
            f"{', '.join(map(str, kept))}.\nTo delete them, run `slurm-operator install` again, or "
            f"`slurm-operator uninstall --force` if their jobs may be lost."
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


async def uninstall(
    client: Client, namespace: str, *, crds: bool = False, force: bool = False
) -> Sequence[HeldNodeSet]:
    """Remove the operator, then the finalizers that it would have removed; return the NodeSets that keep theirs.

    A NodeSet that stays keeps its finalizer, so that its deletion ends no job, not even without an operator. Workers
    of one that goes are deleted as well, so they must run no jobs.
    """
    await _to_release(client, namespace, crds=crds, force=force)
    manifests = Manifests(client, MANAGER, namespace)
    await manifests.delete([*operator_manifests(namespace), *webhook_manifests(WebhookOptions(namespace=namespace))])
    await _operator_ended(client, namespace)
    # A second look: until now jobs could start, NodeSets could be deleted, and the operator could add finalizers.
    for nodeset in await _to_release(client, namespace, crds=crds, force=force):
        if nodeset.held:
            if await leaves_workers(client, nodeset):
                await free_workers(client, nodeset.metadata)
            elif nodeset.metadata.terminating:
                await delete_workers(client, nodeset.metadata)
            await release(client, nodeset)
    if crds:
        await manifests.delete(crd_manifests())
        await delete_shared(client)
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await _gone(client, namespace)
    except TimeoutError as error:
        hint = f"see: kubectl get namespace {namespace} -o yaml"
        raise UserError(f"namespace {namespace} was not gone within {GOODBYE_SECONDS:g} s", hint) from error
    return [] if crds else [nodeset for nodeset in await all_nodesets(client) if nodeset.held]


async def _to_release(client: Client, namespace: str, *, crds: bool, force: bool) -> list[HeldNodeSet]:
    """Return the NodeSets that go, with --force all of them; refuse if they have workers with jobs."""
    found = await all_nodesets(client)
    if force:
        return found
    going = [
        nodeset
        for nodeset in found
        if crds or nodeset.metadata.namespace == namespace or (nodeset.held and nodeset.metadata.terminating)
    ]
    await refuse_busy(client, [one for one in going if crds or not await leaves_workers(client, one)], BUSY_HINT)
    return going


async def _operator_ended(client: Client, namespace: str) -> None:
    """Wait until no pod of the operator is left: one that still runs adds the finalizer again."""
    left: list[str] = []
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            while pods := (await client.list(PODS, namespace, labels=f"{names.LABEL_APP}={NAME}")).items:
                if not left:
                    print("waiting for the operator's pods to end", flush=True)
                left = [pod.metadata.name for pod in pods]
                await asyncio.sleep(0.5)
    except TimeoutError as error:
        hint = f"see: kubectl -n {namespace} describe pods; then run `slurm-operator uninstall` again"
        message = f"pods of the operator did not end within {GOODBYE_SECONDS:g} s: {', '.join(left)}"
        raise UserError(message, hint) from error


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
