"""Keeps an upper-cased copy `<name>-shouted` of each ConfigMap labelled example.slinky.slurm.net/mirror=source.

Run it against any cluster, and try it from another terminal:

    python -m examples.configmap_controller --kubeconfig ~/.kube/config
    kubectl create configmap hello --from-literal=text='good morning'
    kubectl label configmap hello example.slinky.slurm.net/mirror=source
    kubectl get configmap hello-shouted -o yaml
"""

import argparse
from dataclasses import dataclass

from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import CONFIG_MAPS, ConfigMap
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.actions import Apply, Delete, HasKube, Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.logs import configure_logging
from slurm_operator.runtime.manager import Addresses, Manager, run
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.reconcile import Reconciler, Refusals
from slurm_operator.runtime.sources import feed

LABEL = "example.slinky.slurm.net/mirror"
SUFFIX = "-shouted"


@dataclass(frozen=True)
class Seen:
    """Everything that a decision looks at."""

    source: ConfigMap | None
    copy: ConfigMap | None


def decide(seen: Seen) -> Plan[HasKube]:
    if seen.source is not None:
        return Plan((Apply(CONFIG_MAPS, shouted(seen.source)),))
    if seen.copy is not None:
        meta = seen.copy.metadata
        return Plan((Delete(CONFIG_MAPS, meta.namespace, meta.name, meta.uid),))
    return Plan()


def shouted(source: ConfigMap) -> Manifest:
    """The copy that should exist. It is owned by its source, so that deleting one deletes the other."""
    meta = source.metadata
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": meta.name + SUFFIX,
            "namespace": meta.namespace,
            "labels": {LABEL: "copy"},
            "ownerReferences": [owner],
        },
        "data": {key: text.upper() for key, text in source.data.items()},
    }


def key_of_source(found: ConfigMap) -> tuple[Key]:
    """Source and copy are one piece of work."""
    return ((found.metadata.namespace, found.metadata.name.removesuffix(SUFFIX)),)


@dataclass(frozen=True)
class Hands:
    kube: Kube


def build(client: Client, addresses: Addresses) -> Manager:
    caches, queue = Caches(client), Queue("shout")
    maps = caches.follow(CONFIG_MAPS, labels=LABEL)
    feed(queue, maps, key_of_source)

    def observe(key: Key, refusals: Refusals) -> Seen:
        namespace, name = key
        return Seen(maps.get(namespace, name), maps.get(namespace, name + SUFFIX))

    hands = Hands(Kube(client, Recorder(client, "shout"), caches.stores, manager="shout"))
    return Manager(caches, [Controller("shout", queue, Reconciler(observe, decide, hands))], addresses=addresses)


async def main(kubeconfig: str) -> int:
    async with Client(load(kubeconfig)) as client:
        return await build(client, Addresses(probes="127.0.0.1:8081", metrics="127.0.0.1:8080")).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", default="", help="default: as kubectl finds it")
    configure_logging()
    try:
        code: int | str = run(main(parser.parse_args().kubeconfig))
    except UserError as error:
        code = f"{error.message}\n{error.hint}"
    raise SystemExit(code)
