"""LoginSet: where people log in, with host keys that stay. Observe, decide, report."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from slurm_operator.api import Controller, LoginSet, names
from slurm_operator.desired.loginset import LoginSetFacts, host_keys_secret, loginset_objects
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.custom import CONTROLLERS, LOGINSETS
from slurm_operator.kube.kinds import DEPLOYMENTS, SECRETS, Deployment, Secret
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.actions import Create, HasKube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, is_changing, kept, reported, unread, unwanted
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import rollout_of, summed_up
from slurm_operator.runtime.daemon import Daemon, look
from slurm_operator.runtime.plan import Done, Plan, Urgency
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.trouble import Trouble, no_controller
from slurm_operator.slurm.keys import ssh_host_keys


@dataclass(frozen=True, slots=True)
class MakeHostKeys:
    """Once in the life of a LoginSet. Making an RSA key takes a second or two, so it is done off the event loop."""

    loginset: LoginSet
    urgency: ClassVar[Urgency] = Urgency.NORMAL
    lane: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"make ssh host keys for LoginSet {'/'.join(self.loginset.key)}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self)}

    async def run(self, hands: HasKube) -> Done:
        keys = await asyncio.to_thread(ssh_host_keys)
        return await Create(SECRETS, host_keys_secret(self.loginset, keys)).run(hands)


@dataclass(frozen=True, slots=True)
class Seen:
    loginset: LoginSet
    controller: Controller | None
    refs: Refs
    ring: Secret | None
    """The keys of auth/slurm in use."""
    host_keys: Secret | None
    login: Daemon[Deployment]
    domain: str
    refusals: Refusals
    now: float


class Observer:
    def __init__(self, caches: Caches, references: References, clock: Clock, domain: str) -> None:
        self._caches = caches
        self._references = references
        self._clock = clock
        self._domain = domain

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        loginset = self._caches.store(LOGINSETS).get(*key)
        if loginset is None:
            self._references.drop(("LoginSet", key))
            return None
        namespace, name = key
        controller = self._caches.store(CONTROLLERS).get(namespace, loginset.spec.controller_ref.name)
        ref = controller.spec.slurm_key_ref if controller is not None else None
        secrets = {loginset.spec.sssd_conf_ref.name, *([ref.name] if ref is not None else [])}
        return Seen(
            loginset=loginset,
            controller=controller,
            refs=self._references.read(("LoginSet", key), namespace, secrets=secrets),
            ring=self._caches.store(SECRETS).get(namespace, names.key_ring(ref.name)) if ref is not None else None,
            host_keys=self._caches.store(SECRETS).get(namespace, names.ssh_host_keys(name)),
            login=look(self._caches, loginset, names.APP_LOGIN, DEPLOYMENTS, name),
            domain=self._domain,
            refusals=refusals,
            now=self._clock.now(),
        )


def decide(seen: Seen) -> Plan[HasKube]:
    loginset, children = seen.loginset, seen.login.children
    if loginset.metadata.terminating:
        return Plan()
    if seen.refs.loading:
        return unread(LOGINSETS, loginset, seen.refs, seen.now)
    objects, trouble = wanted(seen)
    actions: list[KubeAction] = []
    if trouble is None and seen.host_keys is None:
        actions.append(MakeHostKeys(loginset))
    actions += kept(LOGINSETS, loginset, children, objects)
    if objects:
        made_once = {"kind": "Secret", "metadata": {"name": names.ssh_host_keys(loginset.metadata.name)}}
        actions += unwanted(children, [*objects, made_once])
        if is_changing(children, objects) and not seen.refusals:
            return Plan(tuple(actions))
    return Plan((*actions, *report(seen, trouble)))


def wanted(seen: Seen) -> tuple[list[Manifest], Trouble | None]:
    """What should exist, as soon as there are keys."""
    namespace, spec = seen.loginset.metadata.namespace, seen.loginset.spec
    controller, sssd = seen.controller, spec.sssd_conf_ref
    if controller is None:
        return [], no_controller(namespace, spec.controller_ref.name)
    key = controller.spec.slurm_key_ref
    if trouble := seen.refs.missing_secret(namespace, sssd, "sssdConfRef") or seen.refs.missing_secret(
        namespace, key, f"slurmKeyRef of Controller {controller.metadata.name}"
    ):
        return [], trouble
    if seen.host_keys is None or (seen.ring is None and key is not None):
        return [], None
    facts = LoginSetFacts(
        controller=controller,
        domain=seen.domain,
        sssd_conf=seen.refs.secret(sssd.name)[sssd.key],
        host_keys_hash=content_hash(seen.host_keys.data),
        pods=seen.login.pods,
    )
    try:
        return loginset_objects(seen.loginset, facts), None
    except ValueError as error:
        return [], Trouble("InvalidSpec", str(error))


def report(seen: Seen, trouble: Trouble | None) -> Iterator[KubeAction]:
    loginset, workload = seen.loginset, seen.login.workload
    count = loginset.spec.replicas
    verdicts = summed_up(
        waiting=rollout_of(workload, "the login pods"),
        done="the login pod is ready" if count == 1 else f"{count} login pods are ready",
        blocked=trouble,
        refusals=seen.refusals,
        noticed=seen.login.trouble,
    )
    yield from reported(
        LOGINSETS,
        loginset,
        verdicts,
        seen.now,
        replicas=workload.status.replicas if workload is not None else 0,
        selector=names.selector_text(names.APP_LOGIN, loginset.metadata.name),
    )
