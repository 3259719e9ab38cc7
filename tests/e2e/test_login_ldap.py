"""People of a real directory log in on the real stage, by ssh through SSSD, and run jobs as themselves."""

import datetime
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_operator.admission.certs import issue, new_authority
from tests.e2e.slurm import Slurm
from tests.e2e.small import part
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(300)

ADMIN = "cn=admin,dc=example,dc=org"
LDIF = """\
dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: cn=science,dc=example,dc=org
objectClass: posixGroup
cn: science
gidNumber: 3000

dn: uid=ada,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
objectClass: posixAccount
uid: ada
cn: Ada
sn: Lovelace
uidNumber: 3001
gidNumber: 3000
homeDirectory: /home/ada
loginShell: /bin/bash
userPassword: first
"""
SSSD = """\
[sssd]
services = nss, pam
domains = directory
[domain/directory]
id_provider = ldap
ldap_uri = ldap://{host}
ldap_search_base = dc=example,dc=org
cache_credentials = false
ldap_tls_cacert = /etc/directory/ca.crt
"""


def directory(host: str) -> list[dict[str, Any]]:
    """slapd with one person, a certificate for its name, and the sssd.conf that leads there."""
    now = datetime.datetime.now(datetime.UTC)
    authority = new_authority(now)
    own = issue(authority, [host], now)
    tls = {"tls.crt": own.certificate.decode(), "tls.key": own.key.decode()}
    client = {"sssd.conf": SSSD.format(host=host), "ca.crt": authority.certificate.decode()}
    container = {
        "name": "slapd",
        "image": "localhost/slurm-operator/openldap:2.6",
        "env": [{"name": "LDAP_ADMIN_PASSWORD", "value": "admin"}],
        "readinessProbe": {"tcpSocket": {"port": 389}, "periodSeconds": 1},
        "volumeMounts": [{"name": "ldif", "mountPath": "/ldif"}, {"name": "tls", "mountPath": "/tls"}],
    }
    volumes = [
        {"name": "ldif", "configMap": {"name": "people"}},
        {"name": "tls", "secret": {"secretName": "ldap"}},
    ]
    spec = {"containers": [container], "volumes": volumes}
    meta = {"name": "ldap", "labels": {"app": "ldap"}}
    service = {"selector": {"app": "ldap"}, "ports": [{"port": 389}]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "people"}, "data": {"people.ldif": LDIF}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ldap"}, "spec": service},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ldap"}, "stringData": tls},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "directory"}, "stringData": client},
    ]


def loginset() -> dict[str, Any]:
    """The example's, with its people from the directory."""
    found = part("LoginSet", "door", sssdConfRef={"name": "directory", "key": "sssd.conf"})
    found["spec"]["login"]["volumeMounts"].append({"name": "directory", "mountPath": "/etc/directory"})
    volume = {
        "name": "directory",
        "secret": {"secretName": "directory", "items": [{"key": "ca.crt", "path": "ca.crt"}]},
    }
    found["spec"]["template"]["spec"]["volumes"].append(volume)
    return found


class Door:
    """A login pod whose people come from the directory."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm = slurm
        self.known_hosts = folder / "known_hosts"
        self.folder = folder

    @property
    def pods(self) -> list[dict[str, Any]]:
        """Login pods that are not on their way out."""
        selector = "app.kubernetes.io/instance=door,app.kubernetes.io/name=login"
        query = ("get", "pods", "-n", self.slurm.namespace, "-l", selector)
        found = self.slurm.cluster.kubectl.json(*query)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @property
    def pod(self) -> dict[str, Any]:
        return self.pods[0]

    def ssh(self, password: str, command: str) -> subprocess.CompletedProcess[str]:
        """One command as ada, in a session that a password opened."""
        asked = self.folder / "password"
        asked.write_text(f"#!/bin/sh\necho '{password}'\n")
        asked.chmod(0o700)
        options = {
            "UserKnownHostsFile": str(self.known_hosts),
            "StrictHostKeyChecking": "accept-new",
            "HostKeyAlias": "door",
            "PreferredAuthentications": "password,keyboard-interactive",
            "NumberOfPasswordPrompts": "1",
            "ConnectTimeout": "5",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        environment = {**os.environ, "SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": "none"}
        address = f"ada@{self.pod['status']['podIP']}"
        return subprocess.run(
            ["ssh", "-F", "none", *words, address, command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def run(self, password: str, command: str) -> str:
        done = self.ssh(password, command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def door(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    slurm.apply(*directory(f"ldap.{slurm.namespace}.svc.cluster.local"))
    slurm.cluster.wait_ready(slurm.namespace, "ldap")
    slurm.apply(loginset())
    slurm.wait_ready("loginset/door")
    found = Door(slurm, tmp_path_factory.mktemp("ssh"))
    eventually("ada is known", lambda: found.ssh("first", "true").returncode == 0, timeout=60, pause=1)
    yield found
    slurm.kubectl(
        "delete", "loginset/door", "pod/ldap", "service/ldap", "configmap/people", "secret/directory", "secret/ldap"
    )


def test_a_person_of_the_directory_runs_jobs_as_themselves(door: Door) -> None:
    assert door.run("first", "id -un; id -u; id -gn") == "ada\n3001\nscience"
    assert door.run("first", "srun -N1 id -u") == "3001"
    job = door.run("first", "cd ~ && sbatch --parsable --wait --wrap 'id -u; pwd'")
    assert door.run("first", f"cat ~/slurm-{job}.out") == "3001\n/home/ada"
    assert door.run("first", f"sacct -n -X -P -j {job} -o User,State") == "ada|COMPLETED"
    refused = door.ssh("first", "scontrol update nodename=small-0 state=drain reason=mine")
    assert refused.returncode != 0


def test_a_changed_password_counts_at_once(door: Door) -> None:
    change = ("ldappasswd", "-x", "-D", ADMIN, "-w", "admin", "-s", "{}", "uid=ada,ou=people,dc=example,dc=org")

    def set_password(word: str) -> None:
        door.slurm.kubectl("exec", "ldap", "--", *(part.format(word) for part in change))

    set_password("second")
    try:
        assert door.run("second", "id -un") == "ada"
        assert door.ssh("first", "true").returncode != 0
    finally:
        set_password("first")


def delete(door: Door) -> None:
    before = door.pod["metadata"]["uid"]
    door.slurm.kubectl("delete", "pod", door.pod["metadata"]["name"], timeout=60)
    eventually("a new pod", lambda: [pod["metadata"]["uid"] for pod in door.pods] not in ([], [before]))


def close_and_open(door: Door) -> None:
    door.slurm.kubectl("scale", "loginset", "door", "--replicas=0")
    door.slurm.wait_ready("loginset/door")
    assert door.pods == []
    door.slurm.kubectl("scale", "loginset", "door", "--replicas=1")
    eventually("a new pod", lambda: door.pods != [])


@pytest.mark.parametrize("replace", [delete, close_and_open])
def test_a_new_login_pod_has_the_old_host_keys(door: Door, replace: Callable[[Door], None]) -> None:
    """scenario 183"""
    door.run("first", "true")
    replace(door)
    door.slurm.wait_ready("loginset/door")
    eventually("ada is known again", lambda: door.ssh("first", "true").returncode == 0, timeout=30, pause=1)
    lines = [line for line in door.known_hosts.read_text().splitlines() if line.startswith("door ")]
    assert len(lines) == len(set(lines)), "ssh would have refused another key"
