"""Why an object would be refused: the schema, the rules of the API, and what only the operator can know.

Pure: `(new, old, facts) -> problems`. The webhook and the offline check call the same function.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from slurm_operator.admission.defaults import Manifest, Stored, admitted
from slurm_operator.admission.problem import Facts, Needs, Problem
from slurm_operator.admission.validate_pods import (
    claim_problems,
    container_problems,
    metadata_problems,
    pod_problems,
    service_problems,
)
from slurm_operator.admission.validate_rules import rule_problems
from slurm_operator.admission.validate_schema import schema_problems
from slurm_operator.api import Accounting, Controller, Kind, LoginSet, NodeSet, Object, RestApi, Token, names
from slurm_operator.api.common import PodTemplate
from slurm_operator.api.controller import CLUSTER_NAME_LIMIT
from slurm_operator.api.crd import schema
from slurm_operator.api.kind import NEEDS_SPEC
from slurm_operator.api.nodeset import WorkerTemplate

HOSTNAME_LIMIT: Final = 63
_NAME_LIMITS: Final[dict[str, int]] = {
    # <name>-controller is a StatefulSet, whose pods carry a label of that name and 11 characters more
    "Controller": 63 - 11 - len("-controller"),
    "Accounting": 63 - 11 - len("-accounting"),
    "RestApi": 63 - len("-restapi"),
    "LoginSet": 63,
    "NodeSet": 63,
    "Token": 253 - len("-jwt-"),
}
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FORBIDDEN_FILES: Final = ("slurm.conf", "slurmdbd.conf")


def validate(
    kind: Kind[Object], new: Manifest, old: Manifest | None = None, facts: Facts | None = None
) -> list[Problem]:
    """Every reason to refuse the object. An object that is being deleted is never held up."""
    if _metadata(new).get("deletionTimestamp"):
        return []
    return shape_problems(kind, new) or judged(kind, admitted(kind, new), old, facts or Facts())


def shape_problems(kind: Kind[Object], new: Manifest) -> list[Problem]:
    """Return the parts that do not even have the type that the schema asks for."""
    if not NEEDS_SPEC.holds(new):
        return [Problem("spec", NEEDS_SPEC.message, NEEDS_SPEC.hint)]
    stored = admitted(kind, new)
    problems = [] if stored.fits else schema_problems(schema(kind), stored)
    return [*problems, *_metadata_problems(_metadata(new))]


def judged(kind: Kind[Object], stored: Stored, old: Manifest | None, facts: Facts) -> list[Problem]:
    """Return what the rules say about an object whose parts have the right types."""
    try:
        typed = load(kind, stored)
    except msgspec.ValidationError as error:
        return [_load_problem(error)]
    before = _loaded_or_none(kind, old)
    problems = rule_problems(typed, before)
    if old is None:
        problems += _name_problems(kind, typed.metadata.name)
    return problems + list(_kind_problems(typed, before, facts))


def load(kind: Kind[Object], manifest: Manifest) -> Object:
    """The typed object; msgspec.ValidationError, which names the place, if it does not fit the schema."""
    stored = admitted(kind, manifest)
    if stored.typed is None:
        stored.typed = msgspec.convert(stored, kind.type)
    return stored.typed


def needs(obj: Object) -> Needs:
    """What has to be looked up to judge the object fully."""
    if not isinstance(obj, Controller):
        return Needs()
    claim = obj.spec.persistence.existing_claim if obj.spec.high_availability else ""
    return Needs(
        config_maps=frozenset(ref.name for ref in obj.spec.config_file_refs if ref.name),
        claims=frozenset({claim} - {""}),
    )


def _load_problem(error: msgspec.ValidationError) -> Problem:
    message, _, place = str(error).partition(" - at `$.")
    return Problem(place.rstrip("`") or "metadata", message[:1].lower() + message[1:], "see kubectl explain")


def _metadata(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _metadata_problems(metadata: dict[str, Any]) -> Iterator[Problem]:
    for field in ("name", "generateName", "namespace"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            yield Problem(f"metadata.{field}", "must be a text", "put it in quotes")
    for field in ("labels", "annotations"):
        entries = metadata.get(field) or {}
        if not isinstance(entries, dict):
            yield Problem(f"metadata.{field}", "must be a mapping", "write one key: value per line")
            continue
        for key, value in entries.items():
            if not isinstance(value, str) or not isinstance(key, str):
                yield Problem(f"metadata.{field}.{key}", "must be a text", "put it in quotes")


def _loaded_or_none(kind: Kind[Object], manifest: Manifest | None) -> Object | None:
    """An old object that does not fit the schema any more cannot be compared with, and so forbids nothing."""
    if manifest is None or not NEEDS_SPEC.holds(manifest):
        return None
    try:
        return load(kind, manifest)
    except msgspec.ValidationError:
        return None


def _name_problems(kind: Kind[Object], name: str) -> Iterator[Problem]:
    """Names of children are made from the name, and must fit too."""
    if not name:
        return
    if not _OBJECT_NAME.fullmatch(name):
        yield Problem("metadata.name", f"{name!r} is not a name", "use lower-case letters, digits and -")
    elif len(name) > (limit := _NAME_LIMITS[kind.name]):
        yield Problem("metadata.name", f"is {len(name)} characters long", f"use at most {limit}: children add to it")
    elif kind.name not in ("NodeSet", "Token") and not _SERVICE_NAME.fullmatch(name):
        hint = "begin with a letter, and use lower-case letters, digits and - only"
        yield Problem("metadata.name", "no Service can have a name made from it", hint)


def _kind_problems(new: Object, old: Object | None, facts: Facts) -> Iterator[Problem]:
    match new:
        case Controller():
            yield from _controller_problems(new, old, facts)
        case Accounting():
            yield from container_problems(new.spec.slurmdbd, "spec.slurmdbd")
            yield from _template_problems(new.spec.template, ["slurmdbd"])
            yield from service_problems(new.spec.service, names.PORT_SLURMDBD, "slurmdbd", "spec.service")
        case NodeSet():
            yield from _nodeset_problems(new)
        case LoginSet():
            yield from container_problems(new.spec.login, "spec.login")
            yield from container_problems(new.spec.initconf, "spec.initconf")
            yield from _template_problems(new.spec.template, ["initconf", "login"])
            yield from service_problems(new.spec.service, names.PORT_SSH, "login", "spec.service")
        case RestApi():
            yield from container_problems(new.spec.slurmrestd, "spec.slurmrestd")
            yield from _template_problems(new.spec.template, ["slurmrestd"])
            yield from service_problems(new.spec.service, names.PORT_SLURMRESTD, "slurmrestd", "spec.service")
        case Token():
            yield from _token_problems(new)
        case _:
            return


def _template_problems(template: PodTemplate | WorkerTemplate, generated: list[str]) -> Iterator[Problem]:
    yield from metadata_problems(template.metadata, "spec.template.metadata")
    yield from pod_problems(template.spec, generated, "spec.template.spec")


def _controller_problems(new: Controller, old: Object | None, facts: Facts) -> Iterator[Problem]:
    spec = new.spec
    if old is None and len(new.cluster_name) > CLUSTER_NAME_LIMIT:
        hint = f"set clusterName to a name of at most {CLUSTER_NAME_LIMIT} characters"
        yield Problem("spec.clusterName", f"the cluster would be called {new.cluster_name}, which is too long", hint)
    for name in ("slurmctld", "reconfigure", "logfile"):
        yield from container_problems(getattr(spec, name), f"spec.{name}")
    sidecars = ["reconfigure", "logfile"] if spec.inplace_reconfigure else ["logfile"]
    yield from _template_problems(spec.template, [*sidecars, "slurmctld"])
    yield from service_problems(spec.service, names.PORT_SLURMCTLD, "slurmctld", "spec.service")
    yield from _config_file_problems(new, facts)
    claim = spec.persistence.existing_claim
    modes = facts.claims.get(claim) if spec.high_availability else None
    if modes is not None and "ReadWriteMany" not in modes:
        found = ", ".join(sorted(modes)) or "no access mode"
        hint = "use a claim with ReadWriteMany, which all slurmctld pods can mount"
        yield Problem("spec.persistence.existingClaim", f"{claim} has {found}", hint)


def _config_file_problems(new: Controller, facts: Facts) -> Iterator[Problem]:
    for index, ref in enumerate(new.spec.config_file_refs):
        path = f"spec.configFileRefs[{index}].name"
        if not ref.name:
            yield Problem(path, "name is missing", "name a ConfigMap of this namespace")
        elif ref.name in facts.config_maps:
            keys = facts.config_maps[ref.name]
            if keys is None:
                yield Problem(path, f"ConfigMap {ref.name} does not exist", "create it first, or correct the name")
            for file in _FORBIDDEN_FILES:
                if keys and file in keys:
                    hint = "remove that key and put its lines into extraConf"
                    yield Problem(path, f"ConfigMap {ref.name} holds {file}, which the operator writes itself", hint)


def _nodeset_problems(new: NodeSet) -> Iterator[Problem]:
    spec = new.spec
    yield from container_problems(spec.slurmd, "spec.slurmd")
    yield from container_problems(spec.logfile, "spec.logfile")
    yield from _template_problems(spec.template, ["logfile", "slurmd"])
    yield from claim_problems(spec.volume_claim_templates, "spec.volumeClaimTemplates")
    if spec.scaling_mode == "StatefulSet":
        last = names.ordinal(max(spec.replicas - 1, 0), spec.ordinal_padding)
        hostname = spec.template.hostname + last if spec.template.hostname else f"{new.metadata.name}-{last}"
        if len(hostname) > HOSTNAME_LIMIT:
            path = "spec.template.spec.hostname" if spec.template.hostname else "metadata.name"
            hint = "set template.spec.hostname to a shorter prefix"
            yield Problem(path, f"the host name {hostname} has more than {HOSTNAME_LIMIT} characters", hint)


def _token_problems(new: Token) -> Iterator[Problem]:
    if len(new.target.name) > 253:
        hint = "say with secretRef which Secret to write"
        yield Problem("spec.secretRef", "the name of the Secret would have more than 253 characters", hint)
