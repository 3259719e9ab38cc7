"""RestApi: slurmrestd, through which users and the operator itself talk to Slurm. Observe, decide, report."""

from dataclasses import dataclass

from slurm_operator.api import Controller, RestApi, names
from slurm_operator.desired.metadata import content_hash
from slurm_operator.desired.restapi import RestApiFacts, restapi_objects
from slurm_operator.kube.custom import CONTROLLERS, RESTAPIS
from slurm_operator.kube.kinds import CONFIG_MAPS, DEPLOYMENTS, ConfigMap, Deployment
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, is_changing, kept, reported, unwanted
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import rollout_of, summed_up
from slurm_operator.runtime.daemon import Daemon, look
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.trouble import Trouble, no_controller
from slurm_operator.slurm.conf.writer import unstamped


@dataclass(frozen=True, slots=True)
class Seen:
    restapi: RestApi
    controller: Controller | None
    config: ConfigMap | None
    """Of the Controller: what slurmrestd reads."""
    slurmrestd: Daemon[Deployment]
    refusals: Refusals
    now: float


class Observer:
    def __init__(self, caches: Caches, clock: Clock) -> None:
        self._caches = caches
        self._clock = clock

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        restapi = self._caches.store(RESTAPIS).get(*key)
        if restapi is None:
            return None
        namespace, name = key
        cluster = restapi.spec.controller_ref.name
        controller = self._caches.store(CONTROLLERS).get(namespace, cluster)
        return Seen(
            restapi=restapi,
            controller=controller,
            config=self._caches.store(CONFIG_MAPS).get(namespace, names.config(cluster)),
            slurmrestd=look(self._caches, restapi, names.APP_SLURMRESTD, DEPLOYMENTS, names.restapi(name)),
            refusals=refusals,
            now=self._clock.now(),
        )


def decide(seen: Seen) -> Plan[HasKube]:
    restapi, children = seen.restapi, seen.slurmrestd.children
    if restapi.metadata.terminating:
        return Plan()
    objects, trouble = wanted(seen)
    actions: list[KubeAction] = list(kept(RESTAPIS, restapi, children, objects))
    if objects:
        actions += unwanted(children, objects)
        if is_changing(children, objects) and not seen.refusals:
            return Plan(tuple(actions))
    verdicts = summed_up(
        waiting=rollout_of(seen.slurmrestd.workload, "slurmrestd") if seen.config else _no_configuration(seen),
        done="slurmrestd answers",
        blocked=trouble,
        refusals=seen.refusals,
        noticed=seen.slurmrestd.trouble,
    )
    return Plan((*actions, *reported(RESTAPIS, restapi, verdicts, seen.now)))


def wanted(seen: Seen) -> tuple[list[Manifest], Trouble | None]:
    """What should exist; nothing new, and nothing taken away, as long as the cluster is not there."""
    namespace, name = seen.restapi.metadata.namespace, seen.restapi.spec.controller_ref.name
    if seen.controller is None:
        return [], no_controller(namespace, name)
    if seen.config is None:
        return [], None
    facts = RestApiFacts(
        controller=seen.controller,
        slurm_conf_hash=content_hash({"slurm.conf": unstamped(seen.config.data.get("slurm.conf", ""))}),
    )
    try:
        return restapi_objects(seen.restapi, facts), None
    except ValueError as error:
        return [], Trouble("InvalidSpec", str(error))


def _no_configuration(seen: Seen) -> str:
    name = seen.restapi.spec.controller_ref.name
    return f"waiting for Controller {name} to have a configuration: see its conditions"
