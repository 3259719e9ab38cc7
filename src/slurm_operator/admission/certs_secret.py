"""Keeps the webhook's own keys in a Secret, and tells the API server whom to trust.

Every replica does this by itself: whoever writes first wins, all others take what was written.
"""

import datetime
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slurm_operator.admission.certs import Keys, renewed
from slurm_operator.errors import UserError
from slurm_operator.kube import (
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    AlreadyExists,
    Client,
    Conflict,
    NotFound,
    Resource,
)
from slurm_operator.kube.kinds import Secret, WebhookConfiguration
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.clock import Clock, SystemClock

SECRET: Final = "slurm-operator-webhook-ca"  # noqa: S105 - the name of a Secret, not a secret
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class KeySecret:
    """The Secret in the operator's namespace, for a Service of these DNS names."""

    client: Client
    namespace: str
    names: Sequence[str]
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state
    name: str = SECRET

    async def keys(self) -> Keys:
        """What all replicas use; made, or renewed, if it is due."""
        for _ in range(_TRIES):
            try:
                found = await self.client.get(SECRETS, self.name, self.namespace)
            except NotFound:
                found = None
            known = Keys.from_data(found.data) if found else None
            wanted = renewed(known, self.names, datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC))
            if wanted is known:
                return wanted
            try:
                await self._write(found, wanted)
            except (AlreadyExists, Conflict, NotFound):
                continue
            return wanted
        raise UserError(f"Secret {self.namespace}/{self.name} is changed by others all the time", "stop them")

    async def _write(self, found: Secret | None, keys: Keys) -> None:
        data = {key: b64encode(value).decode() for key, value in keys.to_data().items()}
        metadata: Manifest = {"name": self.name, "namespace": self.namespace}
        if found is None:
            await self.client.create(SECRETS, {"metadata": metadata, "type": "kubernetes.io/tls", "data": data})
            return
        patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "data": data}
        await self.client.patch(SECRETS, self.name, patch, self.namespace)


async def inject(client: Client, name: str, bundle: bytes) -> None:
    """Writes the bundle into both webhook configurations of that name, where it is not there yet."""
    await _inject(client, VALIDATING_WEBHOOKS, name, bundle)
    await _inject(client, MUTATING_WEBHOOKS, name, bundle)


async def _inject(client: Client, res: Resource[WebhookConfiguration], name: str, bundle: bytes) -> None:
    try:
        found = await client.get(res, name)
    except NotFound:
        return
    text = b64encode(bundle).decode()
    changes: list[Manifest] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": text}
        for index, webhook in enumerate(found.webhooks)
        if webhook.client_config.ca_bundle != bundle
    ]
    if changes:
        # The list may have changed since: an index is only good for the version that was read.
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version}
        await client.patch(res, name, [unchanged, *changes], kind="json")
