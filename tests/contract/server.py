"""The server under contract, whichever it is, and the small objects the tests make on it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm_operator.kube.auth import Credentials
from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import NAMESPACES, Namespace
from slurm_operator.kube.model import Condition, Model, ObjectMeta
from slurm_operator.kube.resource import Resource
from slurm_operator.kube.transport import Transport
from tests.fakes.apiserver.kinds import custom

Json = dict[str, Any]


class WidgetSpec(Model):
    replicas: int = 0
    parts: tuple[str, ...] = ()
    settings: dict[str, str] = msgspec.field(default_factory=dict)


class WidgetStatus(Model):
    replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Widget(Model):
    """A custom kind with status and scale, as ours are."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WidgetSpec = WidgetSpec()
    status: WidgetStatus = WidgetStatus()


WIDGETS = Resource("contract.slinky.slurm.net", "v1", "Widget", "widgets", Widget)
WIDGET_KIND = custom(WIDGETS.group, WIDGETS.version, WIDGETS.kind, WIDGETS.plural, scale=True)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", Namespace)

_CONDITIONS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": True,
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "parts": {"type": "array", "items": {"type": "string"}},
                "settings": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "conditions": _CONDITIONS,
            },
        },
    },
}
WIDGET_DEFINITION: Json = {
    "metadata": {"name": f"{WIDGETS.plural}.{WIDGETS.group}"},
    "spec": {
        "group": WIDGETS.group,
        "scope": "Namespaced",
        "names": {"kind": WIDGETS.kind, "plural": WIDGETS.plural, "singular": "widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": WIDGETS.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


@dataclass(frozen=True, slots=True)
class Reply:
    code: int
    body: Any


@dataclass
class ContractServer:
    """A server, our client for it, and a namespace that belongs to one test alone."""

    config: KubeConfig
    client: Client
    transport: Transport
    namespace: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")

    async def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        **params: str,
    ) -> Reply:
        """A request as it is, for what our own client never sends or hides."""
        credentials = Credentials(self.config, SystemClock())
        header = await credentials.header()
        headers = {"Content-Type": content_type} | ({"Authorization": header} if header else {})
        content = None if body is None else msgspec.json.encode(body)
        answer = await self.transport.request(method, path, params, headers, content)
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return Reply(answer.status, msgspec.json.decode(answer.body) if is_json else answer.body.decode())

    def named(self, name: str, **rest: Any) -> Json:
        """A manifest in the test's namespace; keyword `meta` adds to its metadata."""
        meta = rest.pop("meta", {})
        return {"metadata": {"name": name, "namespace": self.namespace} | meta} | rest

    def pod(self, name: str, **rest: Any) -> Json:
        spec = {"containers": [{"name": "main", "image": "none"}]} | rest.pop("spec", {})
        return self.named(name, spec=spec, **rest)


@asynccontextmanager
async def connect(config: KubeConfig) -> AsyncIterator[ContractServer]:
    """A fresh namespace, with the service account without which a real server admits no pod."""
    transport = Transport(config, Credentials(config, SystemClock()).ssl)
    try:
        async with Client(config) as client:
            server = ContractServer(config, client, transport)
            await client.create(NAMESPACES, {"metadata": {"name": server.namespace}})
            await client.apply(SERVICE_ACCOUNTS, server.named("default"), manager="contract")
            yield server
    finally:
        await transport.close()
