"""Looks up what a manifest refers to. What cannot be read is not judged, and the user is told so.

How long that may take is the deadline of the client that is handed in.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from slurm_operator.admission.problem import Facts, Needs, Warn
from slurm_operator.api.syntax import SUBDOMAIN
from slurm_operator.kube import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, ApiError, Client, NotFound, Resource
from slurm_operator.kube.kinds import ConfigMap, PersistentVolumeClaim

_NAME: Final = re.compile(SUBDOMAIN)
_PATHS: Final = {CONFIG_MAPS: "spec.configFileRefs", PERSISTENT_VOLUME_CLAIMS: "spec.persistence.existingClaim"}

Found: TypeAlias = Mapping[str, frozenset[str] | None]


async def look_up(client: Client, needs: Needs, namespace: str) -> tuple[Facts, list[Warn]]:
    """All at once; what could not be read is in the warnings."""
    (maps, unread_maps), (claims, unread_claims) = await asyncio.gather(
        _each(client, CONFIG_MAPS, needs.config_maps, namespace),
        _each(client, PERSISTENT_VOLUME_CLAIMS, needs.claims, namespace),
    )
    return Facts(maps, claims), [*unread_maps, *unread_claims]


def is_name(text: str) -> bool:
    """Whether it may stand in a URL as the name of an object."""
    return _NAME.fullmatch(text) is not None


async def _each(client: Client, res: Resource[Any], names: frozenset[str], namespace: str) -> tuple[Found, list[Warn]]:
    wanted = sorted(names)
    found = await asyncio.gather(*(_one(client, res, name, namespace) for name in wanted))
    answers = zip(wanted, found, strict=True)
    known = {name: answer for name, answer in answers if not isinstance(answer, Warn)}
    return known, [answer for answer in found if isinstance(answer, Warn)]


async def _one(client: Client, res: Resource[Any], name: str, namespace: str) -> frozenset[str] | Warn | None:
    if not is_name(name) or not is_name(namespace):
        return None
    try:
        return _content(await client.get(res, name, namespace))
    except NotFound:
        return None
    except ApiError as error:
        return Warn(_PATHS[res], f"{res.kind} {name} was not checked: {error.message}")


def _content(obj: ConfigMap | PersistentVolumeClaim) -> frozenset[str]:
    if isinstance(obj, ConfigMap):
        return frozenset(obj.data) | frozenset(obj.binary_data)
    return frozenset(obj.spec.access_modes)
