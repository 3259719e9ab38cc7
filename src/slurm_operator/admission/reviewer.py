"""The verdict on our six kinds: the pure rules, fed with what the cluster says about the objects they refer to."""

import gc
from collections.abc import Collection
from functools import partial

import msgspec

from slurm_operator.admission.defaults import Manifest, admitted, default_patch
from slurm_operator.admission.facts import look_up
from slurm_operator.admission.problem import Facts, Needs, Problem
from slurm_operator.admission.review import Handler, Request, Verdict
from slurm_operator.admission.validate import load, needs, validate
from slurm_operator.admission.warnings import warnings
from slurm_operator.api import KINDS, Controller, Kind, Object
from slurm_operator.api.names import API_VERSION, GROUP, VERSION
from slurm_operator.kube import Client

_ALLOWED = Verdict()
_NOTHING = Needs()
_RARELY = 50_000


def validate_path(kind: Kind[Object]) -> str:
    return f"/validate-{GROUP.replace('.', '-')}-{VERSION}-{kind.singular}"


def default_path(kind: Kind[Object]) -> str:
    return f"/mutate-{GROUP.replace('.', '-')}-{VERSION}-{kind.singular}"


class Reviewer:
    def __init__(self, client: Client, namespaces: Collection[str] = ()) -> None:
        """Judges objects of these namespaces, of all if none is named."""
        self._client = client
        self._namespaces = frozenset(namespaces)

    def rehearse(self) -> None:
        """The first look at a kind prepares its schema, which should not be at the cost of the first request."""
        for kind in KINDS:
            sample: Manifest = {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": "a"}, "spec": {}}
            validate(kind, sample, sample)
            warnings(kind, sample)
            default_patch(kind, sample)
        # All that is there now stays: the garbage collector need not look at it again.
        gc.collect()
        gc.freeze()
        # A review makes thousands of objects that go as it ends, none of them in circles: not worth a look each time.
        gc.set_threshold(_RARELY, *gc.get_threshold()[1:])

    def routes(self) -> dict[str, Handler]:
        routes: dict[str, Handler] = {}
        for kind in KINDS:
            routes[validate_path(kind)] = partial(self.validated, kind)
            routes[default_path(kind)] = partial(self.defaulted, kind)
        return routes

    async def validated(self, kind: Kind[Object], request: Request) -> Verdict:
        if self._is_no_concern(request):
            return _ALLOWED
        if problem := _mistaken(kind, request.object):
            return Verdict([problem])
        sent, old = request.object or {}, request.old_object
        if old is not None and _same_spec(sent, old):
            return _ALLOWED
        new = admitted(kind, _written(sent))
        wanted = _needs(kind, new)
        facts, unread = (Facts(), []) if wanted == _NOTHING else await look_up(self._client, wanted, request.namespace)
        return Verdict(validate(kind, new, old, facts), [*unread, *warnings(kind, new, facts)])

    async def defaulted(self, kind: Kind[Object], request: Request) -> Verdict:
        """Only adds. What is wrong with the object, the validating webhook says later, and better."""
        new = request.object
        if self._is_no_concern(request) or new is None or _mistaken(kind, new):
            return _ALLOWED
        return Verdict(patch=default_patch(kind, new))

    def _is_no_concern(self, request: Request) -> bool:
        elsewhere = self._namespaces and request.namespace not in self._namespaces
        return bool(elsewhere) or request.operation not in ("CREATE", "UPDATE")


def _mistaken(kind: Kind[Object], new: Manifest | None) -> Problem | None:
    """A review that should not have come here; only a wrong webhook configuration sends one."""
    if new is None:
        return Problem("object", "is missing", "send the object that is to be created or updated")
    for field, wanted in (("apiVersion", API_VERSION), ("kind", kind.name)):
        if new.get(field) != wanted:
            return Problem(field, f"is {new.get(field)!r}", f"write {wanted}")
    return None


def _written(manifest: Manifest) -> Manifest:
    """Without what the API server keeps account of by itself, which is often more than all the rest."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return manifest
    return {**manifest, "metadata": {name: part for name, part in metadata.items() if name != "managedFields"}}


def _same_spec(new: Manifest, old: Manifest) -> bool:
    """Labels, finalizers and deletion are never held up by a spec that was accepted once."""
    return new.get("spec") is not None and new.get("spec") == old.get("spec")


def _needs(kind: Kind[Object], new: Manifest) -> Needs:
    if not issubclass(kind.type, Controller):
        return _NOTHING
    try:
        return needs(load(kind, new))
    except msgspec.ValidationError:
        return _NOTHING
