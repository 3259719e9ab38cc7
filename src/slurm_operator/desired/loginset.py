"""What a LoginSet wants to exist: login pods with sackd, sshd and sssd, their host keys and their Service."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from slurm_operator.api import Controller, LoginSet, names
from slurm_operator.desired import endpoints, metadata, pod
from slurm_operator.desired.dns import DEFAULT_DOMAIN, full_name
from slurm_operator.desired.scripts import script
from slurm_operator.desired.service import LOGIN_PORT, port, service
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.ssh import authorized_keys, login_sshd_config
from slurm_operator.slurm.conf.writer import CONF_DIR

KEYS_DIR = "/mnt/slurm"
"""Where the kubelet brings the keys. sackd runs as slurm and may not read them there: it has a copy."""
HOST_KEYS = ("ssh_host_rsa_key", "ssh_host_ed25519_key", "ssh_host_ecdsa_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSetFacts:
    controller: Controller
    domain: str = DEFAULT_DOMAIN
    sssd_conf: bytes = b""
    host_keys_hash: str = ""
    pods: tuple[Pod, ...] = ()


def loginset_objects(loginset: LoginSet, facts: LoginSetFacts) -> list[Manifest]:
    """Everything but the host keys, which are made once and then kept."""
    return [_ssh_config(loginset), _service(loginset), _deployment(loginset, facts), *_named_pods(loginset, facts)]


def host_keys_secret(loginset: LoginSet, keys: Mapping[str, bytes]) -> Manifest:
    meta = metadata.child(loginset, names.ssh_host_keys(loginset.metadata.name), _labels(loginset))
    data = {file: b64encode(content).decode() for file, content in keys.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "immutable": True, "data": data}


def _labels(loginset: LoginSet) -> dict[str, str]:
    return metadata.labels(names.APP_LOGIN, names.COMPONENT_LOGIN, loginset.metadata.name)


def _selector(loginset: LoginSet) -> dict[str, str]:
    return names.selector(names.APP_LOGIN, loginset.metadata.name)


def _ssh_files(loginset: LoginSet) -> dict[str, str]:
    return {
        "authorized_keys": authorized_keys(loginset.spec.root_ssh_authorized_keys),
        "sshd_config": login_sshd_config(loginset.spec.extra_sshd_config),
    }


def _ssh_config(loginset: LoginSet) -> Manifest:
    meta = metadata.child(loginset, names.ssh_config(loginset.metadata.name), _labels(loginset))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": _ssh_files(loginset)}


def _service(loginset: LoginSet) -> Manifest:
    wish = loginset.spec.service
    meta = metadata.child(loginset, loginset.metadata.name, _labels(loginset), wish.metadata)
    daemon = port("login", wish.port or names.PORT_SSH, "login", wish.node_port)
    return service(meta, wish, _selector(loginset), daemon)


def _named_pods(loginset: LoginSet, facts: LoginSetFacts) -> Iterator[Manifest]:
    """Who is where, for slurmctld: the DNS knows the pods of a Deployment by this alone."""
    service = names.logins_service(facts.controller.metadata.name)
    marks = {**_labels(loginset), names.LABEL_SERVICE: service, names.LABEL_SLICE_MANAGER: names.SLICE_MANAGER}
    here = [login for login in facts.pods if login.status.pod_ip and login.status.phase not in ("Succeeded", "Failed")]
    for family in () if facts.controller.spec.external else ("IPv4", "IPv6"):
        found = {_host(login): login.status.pod_ip for login in here if _family(login.status.pod_ip) == family}
        if found:
            name = names.logins_slice(loginset.metadata.name, family)
            yield {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata.child(loginset, name, marks),
                "addressType": family,
                "endpoints": [{"addresses": [ip], "hostname": host} for host, ip in sorted(found.items())],
                "ports": [{"name": LOGIN_PORT["name"], "port": _ssh_port(loginset)}],
            }


def _host(login: Pod) -> str:
    """What `hostname` says in the pod, as the kubelet makes it."""
    return login.spec.hostname or login.metadata.name[:63].rstrip("-.")


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _deployment(loginset: LoginSet, facts: LoginSetFacts) -> Manifest:
    template = loginset.spec.template
    spec = {
        "replicas": loginset.spec.replicas,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": _selector(loginset)},
        "template": {
            "metadata": metadata.pod(loginset, _labels(loginset), template.metadata, _hashes(loginset, facts), "login"),
            "spec": _pod_spec(loginset, facts),
        },
    }
    if strategy := msgspec.to_builtins(loginset.spec.strategy):
        spec["strategy"] = strategy
    meta = metadata.child(loginset, loginset.metadata.name, _labels(loginset), template.metadata)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def _hashes(loginset: LoginSet, facts: LoginSetFacts) -> dict[str, str]:
    """What is mounted as single files only changes with a new pod."""
    return {
        names.ANNOTATION_SSHD_CONF_HASH: metadata.content_hash(_ssh_files(loginset)),
        names.ANNOTATION_SSSD_CONF_HASH: metadata.text_hash(facts.sssd_conf),
        names.ANNOTATION_SSH_HOST_KEYS_HASH: facts.host_keys_hash,
    }


def _pod_spec(loginset: LoginSet, facts: LoginSetFacts) -> Manifest:
    controller = facts.controller
    workers = full_name(names.workers_service(controller.metadata.name), controller.metadata.namespace, facts.domain)
    ours = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsConfig": {"searches": [workers]},
        "initContainers": [_initconf(loginset)],
        "containers": [_login(loginset, controller)],
        "volumes": _volumes(loginset, controller),
    }
    return pod.finished(ours, loginset.spec.template.spec)


def _initconf(loginset: LoginSet) -> Manifest:
    return pod.container(
        "initconf",
        loginset.spec.initconf,
        command=["sh", "-c", script("initconf")],
        env=[{"name": "SLURM_USER", "value": names.SLURM_USER}],
        volumeMounts=[
            pod.mount("slurm-etc", "/mnt/etc/slurm", read_only=False),
            pod.mount("slurm-config", KEYS_DIR),
        ],
    )


def _login(loginset: LoginSet, controller: Controller) -> Manifest:
    public = tuple(f"{file}.pub" for file in HOST_KEYS)
    return pod.container(
        "login",
        loginset.spec.login,
        env=[{"name": "SACKD_OPTIONS", "value": f"--conf-server {endpoints.conf_server(controller)}"}],
        ports=[pod.port("login", _ssh_port(loginset))],
        readinessProbe={"exec": {"command": ["test", "-S", "/run/slurm/sack.socket"]}, **pod.OFTEN},
        lifecycle={"postStart": pod.reread_keys("sackd", KEYS_DIR, CONF_DIR)},
        volumeMounts=[
            pod.mount("slurm-etc", CONF_DIR, read_only=False),
            pod.mount("slurm-config", KEYS_DIR),
            pod.mount("sackd-dir", "/run/slurm", read_only=False),
            *(pod.mount("ssh-host-keys", f"/etc/ssh/{file}", file) for file in (*HOST_KEYS, *public)),
            pod.mount("ssh-config", "/etc/ssh/sshd_config", "sshd_config"),
            pod.mount("ssh-config", "/root/.ssh/authorized_keys", "authorized_keys"),
            pod.mount("sssd-conf", "/etc/sssd/sssd.conf", "sssd.conf"),
        ],
    )


def _ssh_port(loginset: LoginSet) -> int:
    """The user's port of our name, for pods in the network of their Node where 22 is taken."""
    wished = loginset.spec.login.get("ports") or []
    return next((entry["containerPort"] for entry in wished if entry.get("name") == "login"), names.PORT_SSH)


def _volumes(loginset: LoginSet, controller: Controller) -> list[Manifest]:
    keys = [{"key": file, "path": file, "mode": pod.PRIVATE} for file in HOST_KEYS]
    public = [{"key": f"{file}.pub", "path": f"{file}.pub", "mode": pod.PUBLIC} for file in HOST_KEYS]
    name = loginset.metadata.name
    return [
        pod.memory("slurm-etc"),
        pod.memory("sackd-dir"),
        pod.projected("slurm-config", pod.PRIVATE, *pod.from_key_ring(controller.spec.slurm_key_ref)),
        pod.projected(
            "ssh-host-keys",
            pod.PRIVATE,
            {"secret": {"name": names.ssh_host_keys(name), "items": [*keys, *public]}},
        ),
        pod.projected("ssh-config", pod.PRIVATE, *pod.all_of([names.ssh_config(name)])),
        pod.projected("sssd-conf", pod.PRIVATE, *pod.from_secret(loginset.spec.sssd_conf_ref, "sssd.conf")),
    ]
