"""Which server to talk to and as whom: kubeconfig files as kubectl reads them, or the pod's service account."""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from slurm_operator.errors import UserError
from slurm_operator.kube.proxy import proxy_for, without_password

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate, key or token: a file, read again when it changes, or the content itself."""

    file: Path | None = None
    data: bytes = b""

    @property
    def origin(self) -> str:
        return str(self.file) if self.file else "the kubeconfig"

    def read(self) -> bytes:
        if self.file is None:
            return self.data
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {self.file}: {error.strerror}", "name a file that exists") from None

    @property
    def modified(self) -> float:
        """When the file changed last; 0 if it is not a file or is being replaced right now."""
        try:
            return self.file.stat().st_mtime if self.file else 0.0
        except OSError:
            return 0.0


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class KubeConfig:
    server: str
    source: str = "the given settings"
    namespace: str = "default"
    ca: Material | None = None
    insecure: bool = False
    tls_server_name: str = ""
    certificate: Material | None = None
    key: Material | None = None
    token: Material | None = None
    exec: ExecPlugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    """Headers that ask the server to treat us as another user."""
    proxy: str = ""
    """URL of the HTTP proxy that leads to the server."""


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


E = TypeVar("E")
_Found = dict[str, tuple[Path, E]]


def load(path: str = "", context: str = "", env: Mapping[str, str] = os.environ) -> KubeConfig:
    """Settings from `path`, else from $KUBECONFIG, else from ~/.kube/config, else from inside the cluster."""
    named = path or env.get("KUBECONFIG", "")
    if named:
        return from_files([Path(part).expanduser() for part in named.split(os.pathsep) if part], context, env)
    home = Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"
    if home.exists():
        return from_files([home], context, env)
    if "KUBERNETES_SERVICE_HOST" in env:
        return in_cluster(env)
    raise UserError(
        f"no kubeconfig: $KUBECONFIG is not set, {home} does not exist, and this is not a pod",
        "give one with --kubeconfig, or set KUBECONFIG",
    )


def in_cluster(env: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> KubeConfig:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    token = Material(directory / "token")
    if not directory.joinpath("token").exists():
        raise UserError(f"{token.file} is missing", "run the pod with automountServiceAccountToken: true")
    namespace = directory / "namespace"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return KubeConfig(
        server=server,
        source="the pod's service account",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=Material(directory / "ca.crt"),
        token=token,
        proxy=_proxy("$HTTPS_PROXY", proxy_for(server, env)),
    )


def from_files(paths: list[Path], context: str = "", env: Mapping[str, str] = os.environ) -> KubeConfig:
    """Merge as kubectl does: the first file that names something wins; a missing one of several is skipped."""
    if len(paths) > 1:
        paths = [path for path in paths if path.exists()] or paths[:1]
    clusters: _Found[_Cluster] = {}
    users: _Found[_User] = {}
    contexts: _Found[_Context] = {}
    for path in paths:
        content = _parse(path)
        for cluster in content.clusters or ():
            clusters.setdefault(cluster.name, (path, cluster.cluster))
        for user in content.users or ():
            users.setdefault(user.name, (path, user.user))
        for entry in content.contexts or ():
            contexts.setdefault(entry.name, (path, entry.context))
        context = context or content.current_context
    where = os.pathsep.join(map(str, paths))
    if not context:
        raise UserError(f"{where} has no current-context", "choose one with `kubectl config use-context NAME`")
    _, chosen = _pick(contexts, context, "context", where)
    return _assemble(
        f"{where}, context {context!r}",
        chosen.namespace,
        _pick(clusters, chosen.cluster, "cluster", where),
        _pick(users, chosen.user, "user", where) if chosen.user else (paths[0], _User()),
        env,
    )


def _assemble(
    source: str, namespace: str, where: tuple[Path, _Cluster], who: tuple[Path, _User], env: Mapping[str, str]
) -> KubeConfig:
    (cluster_file, cluster), (user_file, user) = where, who
    if not cluster.server:
        raise UserError(f"{source}: the cluster has no server", "add `server: https://...` to it")
    if user.auth_provider:
        raise UserError(f"{source}: auth-provider is no longer part of Kubernetes", "use an exec plugin instead")
    server = cluster.server.rstrip("/")
    return KubeConfig(
        server=server,
        source=source,
        namespace=namespace or "default",
        ca=_material(cluster_file, cluster.certificate_authority, cluster.certificate_authority_data),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        certificate=_material(user_file, user.client_certificate, user.client_certificate_data),
        key=_material(user_file, user.client_key, user.client_key_data),
        token=Material(data=user.token.encode()) if user.token else _material(user_file, user.token_file, ""),
        exec=_plugin(user_file, user.exec, cluster) if user.exec else None,
        impersonate=tuple(_impersonation(source, user)),
        proxy=_proxy(f"proxy-url in {source}", cluster.proxy_url) or _proxy("$HTTPS_PROXY", proxy_for(server, env)),
    )


def _impersonation(source: str, user: _User) -> Iterator[tuple[str, str]]:
    groups, extra = user.as_groups or (), user.as_user_extra or {}
    if not user.as_:
        if user.as_uid or groups or extra:
            raise UserError(f"{source}: as-uid, as-groups or as-user-extra without a user", "add `as: NAME`")
        return
    yield "Impersonate-User", user.as_
    if user.as_uid:
        yield "Impersonate-Uid", user.as_uid
    for group in groups:
        yield "Impersonate-Group", group
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key.lower(), safe='')}", value


def _proxy(origin: str, url: str) -> str:
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise UserError(
            f"{origin}: a proxy at {without_password(url)!r} is not supported",
            "use a proxy with a URL of http:// or https://",
        )
    return url


def _plugin(file: Path, exec_: _Exec, cluster: _Cluster) -> ExecPlugin:
    # A command with a slash is relative to the kubeconfig, a bare one is looked up in PATH.
    command = str(file.parent / exec_.command) if "/" in exec_.command else exec_.command
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": cluster.certificate_authority_data,
    }
    return ExecPlugin(
        command=command,
        args=tuple(exec_.args or ()),
        env=tuple((entry["name"], entry["value"]) for entry in exec_.env or ()),
        api_version=exec_.api_version,
        install_hint=exec_.install_hint,
        cluster=info if exec_.provide_cluster_info else None,
    )


def _material(base: Path, file: str, data: str) -> Material | None:
    if data:
        try:
            return Material(data=base64.b64decode(data, validate=True))
        except binascii.Error:
            raise UserError(
                f"{base}: a *-data field is not base64", "write the file's content with `base64 -w0`"
            ) from None
    return Material(base.parent / file) if file else None


def _pick(found: _Found[E], name: str, what: str, where: str) -> tuple[Path, E]:
    if name in found:
        return found[name]
    known = ", ".join(sorted(found)) or "none"
    raise UserError(f"{where} has no {what} {name!r}", f"there is: {known}")


def _parse(path: Path) -> _File:
    try:
        document = yaml.safe_load(path.read_text())
        return msgspec.convert({} if document is None else document, _File)
    except OSError as error:
        raise UserError(
            f"cannot read kubeconfig {path}: {error.strerror}", "check --kubeconfig and $KUBECONFIG"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise UserError(f"kubeconfig {path} is not valid YAML: {problem}", "repair or replace the file") from None
    except msgspec.ValidationError as error:
        raise UserError(f"kubeconfig {path} is malformed: {error}", "repair or replace the file") from None
