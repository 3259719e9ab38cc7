"""Checks of the parts that the schema leaves open: containers, pod templates, Services, claims, labels.

Kubernetes itself checks them too, but only when the operator creates the pod, far from the person who made the
mistake. So what the operator merges must have the right shape, and names that would clash are found here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slurm_operator.admission.placement import placement_problems
from slurm_operator.admission.problem import Problem
from slurm_operator.admission.validate_schema import join
from slurm_operator.api.common import Metadata, ServiceSpec
from slurm_operator.api.values import parse_quantity

_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Plain:
    """A shape that is just a type."""

    kind: type
    noun: str

    def __call__(self, value: Any, path: str) -> Iterator[Problem]:
        if not self.fits(value):
            yield Problem(path, f"must be {self.noun}", f"write {self.noun} as core/v1 has it")

    def fits(self, value: Any) -> bool:
        return isinstance(value, self.kind) and not (self.kind is int and isinstance(value, bool))


Shape = _Plain | Callable[[Any, str], Iterator[Problem]]

_TEXT: Final = _Plain(str, "a text")
_FLAG: Final = _Plain(bool, "true or false")
_NUMBER: Final = _Plain(int, "a whole number")
_MAPPING: Final = _Plain(dict, "a mapping")
_LIST: Final = _Plain(list, "a list")


def _texts(value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, "must be a list of texts", "write one text per item")
        return
    for index, item in enumerate(value):
        if not isinstance(item, str):
            yield Problem(f"{path}[{index}]", "must be a text", "put it in quotes")


def _items(key: str, **fields: Shape) -> Shape:
    """A list of mappings that are merged by `key`."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield Problem(path, "must be a list", f"write one item per {key}")
            return
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                yield Problem(f"{path}[{index}]", "must be a mapping", f"give its {key}")
            elif item.get(key) in (None, ""):
                yield Problem(f"{path}[{index}].{key}", f"{key} is missing", f"give every item its {key}")
            elif not _is_plain(fields, item):
                yield from _shaped(fields, item, f"{path}[{index}]")

    return check


def _quantities(value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, "must be a mapping", "write for example memory: 4Gi")
        return
    for name, amount in value.items():
        try:
            parse_quantity(amount)
        except ValueError:
            yield Problem(join(path, name), f"{amount!r} is not a quantity", "write for example 500m, 2 or 4Gi")


def _resources(value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, "must be a mapping", "write limits and requests")
        return
    yield from _shaped({"limits": _quantities, "requests": _quantities, "claims": _LIST}, value, path)


_PROBE: Final = _MAPPING
CONTAINER: Final[Mapping[str, Shape]] = {
    "args": _texts,
    "command": _texts,
    "env": _items("name", name=_TEXT, value=_TEXT, valueFrom=_MAPPING),
    "envFrom": _LIST,
    "image": _TEXT,
    "imagePullPolicy": _TEXT,
    "lifecycle": _MAPPING,
    "livenessProbe": _PROBE,
    "name": _TEXT,
    "ports": _items("containerPort", containerPort=_NUMBER, name=_TEXT, hostPort=_NUMBER, protocol=_TEXT),
    "readinessProbe": _PROBE,
    "resizePolicy": _LIST,
    "resources": _resources,
    "restartPolicy": _TEXT,
    "restartPolicyRules": _LIST,
    "securityContext": _MAPPING,
    "startupProbe": _PROBE,
    "stdin": _FLAG,
    "stdinOnce": _FLAG,
    "terminationMessagePath": _TEXT,
    "terminationMessagePolicy": _TEXT,
    "tty": _FLAG,
    "volumeDevices": _items("devicePath", name=_TEXT),
    "volumeMounts": _items("mountPath", mountPath=_TEXT, name=_TEXT, subPath=_TEXT, readOnly=_FLAG),
    "workingDir": _TEXT,
}
"""Fields of a core/v1 Container, with the shape that merging relies on."""

_CONTAINERS: Final = _items("name", **CONTAINER)
POD: Final[Mapping[str, Shape]] = {
    "activeDeadlineSeconds": _NUMBER,
    "affinity": _MAPPING,
    "automountServiceAccountToken": _FLAG,
    "containers": _CONTAINERS,
    "dnsConfig": _MAPPING,
    "dnsPolicy": _TEXT,
    "enableServiceLinks": _FLAG,
    "ephemeralContainers": _LIST,
    "hostAliases": _items("ip"),
    "hostIPC": _FLAG,
    "hostNetwork": _FLAG,
    "hostPID": _FLAG,
    "hostUsers": _FLAG,
    "hostname": _TEXT,
    "hostnameOverride": _TEXT,
    "imagePullSecrets": _items("name", name=_TEXT),
    "initContainers": _CONTAINERS,
    "nodeName": _TEXT,
    "nodeSelector": _MAPPING,
    "os": _MAPPING,
    "overhead": _quantities,
    "preemptionPolicy": _TEXT,
    "priority": _NUMBER,
    "priorityClassName": _TEXT,
    "readinessGates": _LIST,
    "resourceClaims": _items("name"),
    "resources": _resources,
    "restartPolicy": _TEXT,
    "runtimeClassName": _TEXT,
    "schedulerName": _TEXT,
    "schedulingGates": _items("name"),
    "schedulingGroup": _MAPPING,
    "securityContext": _MAPPING,
    "serviceAccount": _TEXT,
    "serviceAccountName": _TEXT,
    "setHostnameAsFQDN": _FLAG,
    "shareProcessNamespace": _FLAG,
    "subdomain": _TEXT,
    "terminationGracePeriodSeconds": _NUMBER,
    "tolerations": _LIST,
    "topologySpreadConstraints": _items("topologyKey"),
    "volumes": _items("name", name=_TEXT),
    "workloadRef": _MAPPING,
}
"""Fields of a core/v1 PodSpec, with the shape that merging relies on."""

SERVICE: Final[Mapping[str, Shape]] = {
    "clusterIP": _TEXT,
    "externalIPs": _LIST,
    "loadBalancerSourceRanges": _texts,
    "ports": _items("port", port=_NUMBER, name=_TEXT, nodePort=_NUMBER),
    "selector": _MAPPING,
    "type": _TEXT,
}


def _shaped(fields: Mapping[str, Shape], value: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Problems of the fields that are there; null counts as absent."""
    for name, item in value.items():
        shape = fields.get(name)
        if shape is not None and item is not None and not (isinstance(shape, _Plain) and shape.fits(item)):
            yield from shape(item, join(path, name))


def _is_plain(fields: Mapping[str, Shape], value: Mapping[str, Any]) -> bool:
    """Whether all of it has the right type, and nothing needs a closer look; most items of long lists are like that."""
    for name, item in value.items():
        shape = fields.get(name)
        if shape is not None and item is not None and not (isinstance(shape, _Plain) and shape.fits(item)):
            return False
    return True


def container_problems(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Of a container that is merged over a generated one."""
    yield from _shaped(CONTAINER, container, path)


def pod_problems(spec: Mapping[str, Any], generated: Iterable[str], path: str) -> Iterator[Problem]:
    """Of a pod spec that is merged over a generated one with containers of these names."""
    misshapen = list(_shaped(POD, spec, path))
    yield from misshapen or placement_problems(spec, path)
    taken = dict.fromkeys(generated, "the operator's own")
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            name = container.get("name") if isinstance(container, dict) else None
            if not isinstance(name, str) or not name:
                continue
            place = f"{path}.{field}[{index}].name"
            if name in taken:
                yield Problem(place, f"a container called {name} exists already ({taken[name]})", "choose another name")
            elif not _DNS_LABEL.fullmatch(name):
                yield Problem(place, f"{name!r} is not a container name", "use lower-case letters, digits and -")
            elif not container.get("image"):
                hint = "name the image that the container runs"
                yield Problem(f"{path}.{field}[{index}].image", f"container {name} has no image", hint)
            taken[name] = f"{field}[{index}]"


def metadata_problems(metadata: Metadata, path: str) -> Iterator[Problem]:
    """Of labels and annotations that Kubernetes would refuse on the children."""
    for name in (*metadata.labels, *metadata.annotations):
        if not _LABEL_KEY.fullmatch(name):
            field = "labels" if name in metadata.labels else "annotations"
            yield Problem(join(f"{path}.{field}", name), "not a key", "write name or example.com/name")
    for name, value in metadata.labels.items():
        if not _LABEL_VALUE.fullmatch(value):
            hint = "use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"
            yield Problem(join(f"{path}.labels", name), f"{value!r} cannot be a label's value", hint)


def service_problems(service: ServiceSpec, port: int, port_name: str, path: str) -> Iterator[Problem]:
    """Of a Service that gets one more port of this name and number."""
    yield from metadata_problems(service.metadata, f"{path}.metadata")
    yield from _shaped(SERVICE, service.spec, f"{path}.spec")
    taken: set[object] = {service.port or port, port_name}
    ports = service.spec.get("ports")
    for index, entry in enumerate(ports if isinstance(ports, list) else ()):
        if not isinstance(entry, dict):
            continue
        place = f"{path}.spec.ports[{index}]"
        for field in ("port", "name"):
            value = entry.get(field)
            if isinstance(value, int | str) and value in taken:
                yield Problem(f"{place}.{field}", f"{value} is used by another port", "choose another one")
            elif isinstance(value, int | str):
                taken.add(value)


def claim_problems(templates: tuple[dict[str, Any], ...], path: str) -> Iterator[Problem]:
    """Of claims that every worker gets."""
    taken: set[str] = set()
    for index, claim in enumerate(templates):
        place = f"{path}[{index}]"
        metadata = claim.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not _DNS_LABEL.fullmatch(name):
            yield Problem(f"{place}.metadata.name", "every claim needs a name", "write for example name: scratch")
        elif name in taken:
            yield Problem(f"{place}.metadata.name", f"{name} is there twice", "choose another name")
        else:
            taken.add(name)
        if not isinstance(claim.get("spec"), dict):
            yield Problem(f"{place}.spec", "spec is missing", "write accessModes and resources.requests.storage")
