"""Merges what users write over what we generate, field by field as Kubernetes' strategic merge does.

What differs from plain strategic merge, because a user's half-filled template must not break a pod:
- null, empty lists, empty maps and empty strings say nothing, while `false` and `0` are meant;
- tolerations, search domains and affinity terms are added to ours, not put in their place;
- a probe or hook keeps our handler unless the user gives one; a volume or variable never has two sources;
- a container named like ours is merged into it; arguments are put after ours.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from slurm_operator.api.meta import without_nulls

Fields = dict[str, Any]
Strategy = Callable[[Any, Any], Any]

_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})


def merge_container(ours: Fields, users: Fields) -> Fields:
    """Our container with the user's wishes; its name stays."""
    merged = _merge_map(ours, users, _CONTAINER)
    if "name" in ours:
        merged["name"] = ours["name"]
    return _root_allowed(merged, users)


def merge_pod_spec(ours: Fields, users: Fields) -> Fields:
    return _root_allowed(_merge_map(ours, users, _POD), users)


def says_nothing(value: Any) -> bool:
    """Whether a value, as charts emit it, is the same as leaving the field out."""
    return value is None or value == "" or (isinstance(value, dict | list | tuple) and not value)


def _root_allowed(merged: Fields, users: Fields) -> Fields:
    """Someone who asks for user 0 does not want to be told that it must not be root."""
    asked = users.get("securityContext") or {}
    if asked.get("runAsUser") == 0 and asked.get("runAsNonRoot") is None:
        merged["securityContext"]["runAsNonRoot"] = False
    return merged


def _merge_map(ours: Mapping[str, Any], users: Mapping[str, Any], table: Mapping[str, Strategy]) -> Fields:
    merged = deepcopy(dict(ours))
    for key, value in users.items():
        if says_nothing(value):
            continue
        merged[key] = table.get(key, _merge_value)(merged.get(key), without_nulls(value))
    return merged


def _merge_value(ours: Any, wish: Any) -> Any:
    if isinstance(ours, dict) and isinstance(wish, dict):
        return _merge_map(ours, wish, {})
    return deepcopy(wish)


def _free_map(ours: Any, wish: Any) -> Any:
    """Keys are the user's own, so an empty value is a value."""
    return {**(ours or {}), **wish}


def _put_after(ours: Any, wish: Any) -> Any:
    return [*(ours or []), *wish]


def _added(ours: Any, wish: Any) -> Any:
    return [*(ours or []), *(item for item in wish if item not in (ours or []))]


def _by_key(key: str, combine: Strategy, fresh: Callable[[Any], Any], ours: Any, wish: Any) -> Any:
    """Lists whose items have an identity: the user's item meets ours of the same one, others come after."""
    merged = list(ours or [])
    places = {item.get(key): place for place, item in enumerate(merged)}
    for item in wish:
        place = places.get(item.get(key))
        if place is None:
            places[item.get(key)] = len(merged)
            merged.append(fresh(item))
        else:
            merged[place] = combine(merged[place], item)
    return merged


def _last(_: Any, wish: Any) -> Any:
    return deepcopy(wish)


def _one_source(ours: Any, wish: Any) -> Any:
    """A volume: the same kind of source is merged, another kind takes its place."""
    return deepcopy(wish) if wish.keys() - ours.keys() else _merge_map(ours, wish, {})


def _one_handler(ours: Any, wish: Any) -> Any:
    """A probe or hook: thresholds are merged, and a handler takes the place of ours."""
    replaced = _HANDLERS if any(not says_nothing(wish.get(handler)) for handler in _HANDLERS) else frozenset[str]()
    return _merge_map({key: value for key, value in (ours or {}).items() if key not in replaced}, wish, {})


def _inner(table: Mapping[str, Strategy]) -> Strategy:
    return lambda ours, wish: _merge_map(ours or {}, wish, table)


def _keyed(key: str, combine: Strategy = _merge_value, fresh: Callable[[Any], Any] = deepcopy) -> Strategy:
    return partial(_by_key, key, combine, fresh)


def _each(names: Iterable[str], strategy: Strategy) -> dict[str, Strategy]:
    return dict.fromkeys(names, strategy)


_TERMS = _each(
    ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"), _added
)

_CONTAINER: dict[str, Strategy] = {
    "args": _put_after,
    "env": _keyed("name", _last),
    "ports": _keyed("containerPort"),
    "volumeMounts": _keyed("mountPath"),
    "volumeDevices": _keyed("devicePath"),
    "resources": _inner({"claims": _keyed("name")}),
    "lifecycle": _inner(_each(("preStop", "postStart"), _one_handler)),
    **_each(("startupProbe", "livenessProbe", "readinessProbe"), _one_handler),
}

_POD: dict[str, Strategy] = {
    **_each(("containers", "initContainers"), _keyed("name", merge_container, partial(merge_container, {}))),
    **_each(("imagePullSecrets", "resourceClaims", "schedulingGates"), _keyed("name")),
    "volumes": _keyed("name", _one_source),
    "hostAliases": _keyed("ip"),
    "topologySpreadConstraints": _keyed("topologyKey"),
    "tolerations": _added,
    "nodeSelector": _free_map,
    "dnsConfig": _inner({"searches": _added, "nameservers": _added, "options": _keyed("name")}),
    "affinity": _inner(_each(("podAffinity", "podAntiAffinity"), _inner(_TERMS))),
}
