"""Service-account tokens signed with the server's own key, so that they can expire when a test needs it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from slurm_local.apiserver import ApiServer
from slurm_local.controlplane import ISSUER
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig, Material
from slurm_operator.kube.errors import Unauthorized
from slurm_operator.kube.kinds import CONFIG_MAPS
from tests.contract.server import SERVICE_ACCOUNTS
from tests.kube.rbac import ROLE_BINDINGS, ROLES, role_manifest

LEEWAY = 60.0
"""The server accepts a token this long after its end; a token that is to end soon must have ended long ago."""


@dataclass(frozen=True)
class KubernetesTokens:
    """An account that may follow config maps in one namespace, and tokens for it."""

    key: ec.EllipticCurvePrivateKey
    namespace: str
    account: str
    uid: str

    @classmethod
    async def grant(cls, api_server: ApiServer, admin: Client, namespace: str) -> KubernetesTokens:
        key = serialization.load_pem_private_key((api_server.folder / "pki" / "sa.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        name = "follower"
        made = await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": namespace}})
        await admin.create(ROLES, role_manifest(name, namespace, {"configmaps": ["get", "list", "watch"]}))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name, "namespace": namespace}, "subjects": [subject], "roleRef": role}
        await admin.create(ROLE_BINDINGS, binding)
        return cls(key, namespace, name, made.metadata.uid)

    def sign(self, seconds: float) -> str:
        """A token that the server accepts for so long from now on."""
        end = int(time.time() + seconds - LEEWAY)
        about = {"namespace": self.namespace, "serviceaccount": {"name": self.account, "uid": self.uid}}
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": f"system:serviceaccount:{self.namespace}:{self.account}",
            "iat": end - 3600,
            "nbf": end - 3600,
            "exp": end,
            "kubernetes.io": about,
        }
        signed = f"{_encode({'alg': 'ES256', 'typ': 'JWT'})}.{_encode(claims)}"
        r, s = utils.decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def config(self, config: KubeConfig, server: str, file: Path) -> KubeConfig:
        return replace(config, server=server, certificate=None, key=None, token=Material(file))

    async def wait_refused(self, config: KubeConfig) -> None:
        """The server remembers a good token for a few seconds, so its end is not sharp."""
        async with Client(config) as client, asyncio.timeout(60):
            while True:
                try:
                    await client.list(CONFIG_MAPS, self.namespace)
                except Unauthorized:
                    return
                await asyncio.sleep(0.5)


def _encode(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
