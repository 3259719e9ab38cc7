"""What the server fills in and refuses before it stores an object: the small part of it that our writers can meet."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.status import bad_request, invalid

Json = dict[str, Any]

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]{1,253}$")
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_IMMUTABLE = {
    "StatefulSet": ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy"),
    "Deployment": ("selector",),
    "PersistentVolumeClaim": ("accessModes", "storageClassName"),
}
_POD_MAY_CHANGE = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
)


def fill_in(kind: Kind, obj: Json) -> None:
    """Defaults that other parts of the server rely on, set on a new object in place."""
    match kind.resource:
        case "namespaces":
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
            obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            obj["status"] = {"phase": "Active"}
        case "pods":
            _pod_defaults(obj["spec"])
            obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        case "deployments.apps" | "statefulsets.apps":
            obj.setdefault("spec", {}).setdefault("replicas", 1)
        case "secrets":
            obj.setdefault("type", "Opaque")
        case _:
            pass


def normalise(kind: Kind, obj: Json) -> None:
    """What every write goes through."""
    if kind.resource == "secrets" and (plain := obj.pop("stringData", None)):
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = obj.get("data", {}) | encoded


def _pod_defaults(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")


def refuse_bad(kind: Kind, obj: Json) -> None:
    metadata = obj["metadata"]
    name = metadata["name"]
    if kind.group != "rbac.authorization.k8s.io" and not (len(name) <= 253 and _SUBDOMAIN.match(name)):
        why = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case letters'
        raise invalid(kind, name, "metadata.name", why)
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str):
            raise bad_request(f"{kind.kind} in version {kind.version!r} cannot be handled: labels[{key}] is no string")
        if len(value) > 63 or not _LABEL_VALUE.match(value):
            why = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric characters'
            )
            raise invalid(kind, name, "metadata.labels", why)
    for owner in metadata.get("ownerReferences") or ():
        for missing in (part for part in _OWNER_FIELDS if not owner.get(part)):
            raise invalid(kind, name, f"metadata.ownerReferences.{missing}", 'Invalid value: "": must not be empty')
    for key in (obj.get("data") or {}) if kind.resource in {"configmaps", "secrets"} else ():
        if not _DATA_KEY.match(key):
            raise invalid(kind, name, f"data[{key}]", f'Invalid value: "{key}": a valid config key must consist of ...')
    if kind.resource == "pods" and not (obj.get("spec") or {}).get("containers"):
        raise invalid(kind, name, "spec.containers", "Required value", "FieldValueRequired")
    if kind.resource == "services":
        _refuse_twin_ports(kind, obj)


def _refuse_twin_ports(kind: Kind, service: Json) -> None:
    names: set[str] = set()
    for index, port in enumerate((service.get("spec") or {}).get("ports") or ()):
        if port.get("name") in names:
            why = f'Duplicate value: "{port["name"]}"'
            raise invalid(kind, service["metadata"]["name"], f"spec.ports[{index}].name", why, "FieldValueDuplicate")
        names |= {port["name"]} if port.get("name") else set()


def refuse_forbidden_change(kind: Kind, old: Json, new: Json) -> None:
    name = old["metadata"]["name"]
    if "deletionTimestamp" in old["metadata"]:
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            why = f"Forbidden: no new finalizers can be added if the object is being deleted, found {sorted(added)}"
            raise invalid(kind, name, "metadata.finalizers", why, "FieldValueForbidden")
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for field in _IMMUTABLE.get(kind.kind, ()):
        if before.get(field) != after.get(field):
            raise invalid(kind, name, f"spec.{field}", "Forbidden: field is immutable", "FieldValueForbidden")
    if kind.resource == "pods" and _fixed_part(before) != _fixed_part(after):
        why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, ..."
        raise invalid(kind, name, "spec", why, "FieldValueForbidden")
    if kind.resource in {"secrets", "configmaps"} and old.get("immutable"):
        for field in ("data", "binaryData"):
            if old.get(field) != new.get(field):
                raise invalid(kind, name, field, "Forbidden: field is immutable when `immutable` is set")


def _fixed_part(spec: Json) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _POD_MAY_CHANGE}
    for containers in ("containers", "initContainers"):
        if containers in fixed:
            fixed[containers] = [
                {key: value for key, value in container.items() if key != "image"} for container in fixed[containers]
            ]
    return fixed
