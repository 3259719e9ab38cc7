"""Credentials that stay fresh: TLS context, tokens from files, exec plugins.

Rotated files are noticed within seconds and loaded into the live TLS context. A server goes by the certificate that a
connection began with, so a new certificate needs new connections: `chain` counts these changes.
"""

import asyncio
import datetime
import json
import logging
import os
import ssl
import tempfile
from pathlib import Path

import msgspec

from slurm_operator.errors import UserError
from slurm_operator.kube.clock import Clock
from slurm_operator.kube.config import ExecPlugin, KubeConfig, Material

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 10.0
PLUGIN_SECONDS = 60.0


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime.datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus


class Credentials:
    def __init__(self, config: KubeConfig, clock: Clock) -> None:
        self.ssl = tls_context(config, clock) if config.server.startswith("https:") else None
        self.chain = 0
        """Changes whenever connections that were opened before should no longer be used."""
        self._config = config
        self._clock = clock
        self._presents = config.certificate is not None
        self._files = [m for m in (config.ca, config.certificate, config.key) if m and m.file]
        self._seen = [m.modified for m in self._files]
        self._token = config.token.read().decode().strip() if config.token else ""
        self._look_at = clock.monotonic() + LOOK_AGAIN_SECONDS
        self._plugin_until = 0.0
        self._plugin_turn = asyncio.Lock()

    async def header(self) -> str:
        """The value of the Authorization header, "" if there is none to send."""
        if self._clock.monotonic() >= self._look_at:
            self._reload()
        if self._config.exec and self._clock.now() >= self._plugin_until:
            async with self._plugin_turn:
                if self._clock.now() >= self._plugin_until:
                    await self._run_plugin(self._config.exec)
        return f"Bearer {self._token}" if self._token else ""

    def distrust(self) -> None:
        """The server refused what we sent: read everything anew before the next call."""
        self._look_at = 0.0
        self._plugin_until = 0.0
        # The certificate of the connection may have expired although a later one is loaded.
        self.chain += self._presents

    def _reload(self) -> None:
        self._look_at = self._clock.monotonic() + LOOK_AGAIN_SECONDS
        try:
            if self._config.token:
                self._token = self._config.token.read().decode().strip()
            seen = [m.modified for m in self._files]
            if self.ssl and seen != self._seen and all(seen):
                trust(self.ssl, self._config)
                present(self.ssl, self._config, self._clock)
                self._seen = seen
                self.chain += self._presents
        except UserError as error:
            # Caught between two writes of a rotation, or gone for good: the old ones may still do.
            log.warning("credentials not reloaded", extra={"error": error.message})

    async def _run_plugin(self, plugin: ExecPlugin) -> None:
        status = (await run_plugin(plugin)).status
        self._token = status.token
        if status.client_certificate_data and self.ssl:
            chain = Material(data=status.client_certificate_data.encode())
            load_chain(self.ssl, chain, Material(data=status.client_key_data.encode()))
            self._presents = True
            self.chain += 1
        expires = status.expiration_timestamp
        self._plugin_until = expires.timestamp() if expires else float("inf")


def tls_context(config: KubeConfig, clock: Clock) -> ssl.SSLContext:
    # Not ssl.create_default_context: since Python 3.13 it refuses CAs without key identifiers, which many clusters
    # have. Chain, expiry and host name are checked all the same.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    trust(context, config)
    present(context, config, clock)
    return context


def trust(context: ssl.SSLContext, config: KubeConfig) -> None:
    """Only the cluster's own authority if one is given, else those of the system."""
    if config.ca is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=config.ca.read().decode())
    except (ssl.SSLError, UnicodeDecodeError):
        raise UserError(f"{config.source}: the certificate authority in {config.ca.origin} is not PEM") from None


def present(context: ssl.SSLContext, config: KubeConfig, clock: Clock) -> None:
    """Show the client certificate, if there is one, in handshakes from now on."""
    if config.certificate is None:
        return
    if config.key is None:
        raise UserError(f"{config.source}: a client certificate without its key", "add client-key or client-key-data")
    refuse_expired(config.certificate, clock)
    load_chain(context, config.certificate, config.key)


def load_chain(context: ssl.SSLContext, certificate: Material, key: Material) -> None:
    # The ssl module takes files only; this one is private and gone at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.read() + b"\n" + key.read())
        file.flush()
        try:
            # Tried on another context first: a certificate whose key does not fit leaves a context without either.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(file.name)
            context.load_cert_chain(file.name)
        except ssl.SSLError:
            raise UserError(
                f"the client certificate in {certificate.origin} and the key in {key.origin} do not make a pair",
                "both must be PEM and belong together",
            ) from None


def refuse_expired(certificate: Material, clock: Clock) -> None:
    # Imported here because only this path needs it, and it costs 10 MB.
    from cryptography import x509

    try:
        end = x509.load_pem_x509_certificate(certificate.read()).not_valid_after_utc
    except ValueError:
        raise UserError(f"the client certificate in {certificate.origin} is not PEM") from None
    if end.timestamp() < clock.now():
        raise UserError(
            f"the client certificate in {certificate.origin} expired on {end:%Y-%m-%d %H:%M} UTC",
            "renew it and write it to the kubeconfig",
        )


async def run_plugin(plugin: ExecPlugin) -> _ExecCredential:
    name = Path(plugin.command).name
    spec = {"interactive": False} | ({"cluster": plugin.cluster} if plugin.cluster else {})
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)},
        )
    except OSError as error:
        hint = plugin.install_hint or "install it, or correct `exec.command` in the kubeconfig"
        raise UserError(f"cannot run the credential plugin {plugin.command!r}: {error.strerror}", hint) from None
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        raise UserError(f"the credential plugin {name!r} did not end within {PLUGIN_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = " ".join(err.decode(errors="replace").split())[-300:]
        raise UserError(f"the credential plugin {name!r} failed with exit code {process.returncode}: {said}")
    try:
        return msgspec.json.decode(out, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise UserError(f"the credential plugin {name!r} did not print an ExecCredential: {error}") from None
