"""One small example of each kind, as a user or the chart writes it."""

from typing import Any, TypeVar

import msgspec
import yaml

from slurm_operator.api import Accounting, Controller, LoginSet, NodeSet, Object, RestApi, Token
from slurm_operator.kube.kinds import Pod, PodStatus
from slurm_operator.kube.model import ObjectMeta

T = TypeVar("T", bound=Object)

META = {"namespace": "slurm", "uid": "11111111-2222-3333-4444-555555555555"}


def make(kind: type[T], name: str, spec: str | dict[str, Any], **meta: Any) -> T:
    parsed = yaml.safe_load(spec) if isinstance(spec, str) else spec
    return msgspec.convert({"metadata": {"name": name, **META, **meta}, "spec": parsed or {}}, kind)


CHART_NOISE = """
  spec:
    imagePullSecrets: null
    priorityClassName: ""
    affinity: {}
    resources: {}
    initContainers: []
    tolerations: []
    volumes: []
    nodeSelector: {kubernetes.io/os: linux}
"""

CONTROLLER = f"""
slurmKeyRef: {{name: slurm-auth-slurm, key: slurm.key}}
jwtKeyRef: {{name: slurm-auth-jwt, key: jwt.key}}
slurmctld: {{image: slurmctld:26.05, args: [], resources: {{}}}}
reconfigure: {{image: slurmctld:26.05}}
logfile: {{image: alpine}}
extraConf: |
  SlurmctldParameters=enable_stepmgr
  PrologFlags=Contain
  PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED
configFileRefs: null
prologScriptRefs: null
persistence:
  enabled: true
  existingClaim: ""
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 4Gi}}}}
service: {{metadata: {{}}, spec: {{}}}}
template:{CHART_NOISE}
"""

ACCOUNTING = """
slurmKeyRef: {name: slurm-auth-slurm, key: slurm.key}
jwtKeyRef: {name: slurm-auth-jwt, key: jwt.key}
slurmdbd: {image: slurmdbd:26.05}
storageConfig:
  host: mariadb
  username: slurm
  passwordKeyRef: {name: mariadb-password, key: password}
template:
  metadata: {labels: {team: hpc}}
"""

RESTAPI = """
controllerRef: {name: slurm}
slurmrestd: {image: slurmrestd:26.05, args: [-vv], env: []}
"""

LOGINSET = """
controllerRef: {name: slurm}
login: {image: login:26.05, env: [], securityContext: {privileged: false}}
initconf: {image: alpine}
rootSshAuthorizedKeys: ssh-ed25519 AAAA admin@example.com
extraSshdConfig: LoginGraceTime 600
sssdConfRef: {name: slurm-sssd-conf, key: sssd.conf}
strategy: {}
service: {metadata: {}, spec: {type: LoadBalancer}}
"""

NODESET = f"""
controllerRef: {{name: slurm}}
replicas: 2
slurmd: {{image: slurmd:26.05, args: [], env: [], resources: {{limits: {{cpu: 1500m, memory: 2Gi}}}}}}
logfile: {{image: alpine}}
template:{CHART_NOISE}    hostname: slinky-
"""

TOKEN = """
username: alice
jwtKeyRef: {name: slurm-auth-jwt, key: jwt.key}
"""


def controller(extra: str = "", **meta: Any) -> Controller:
    return make(Controller, "slurm", CONTROLLER + extra, **meta)


def accounting(extra: str = "") -> Accounting:
    return make(Accounting, "slurm", ACCOUNTING + extra)


def restapi(extra: str = "") -> RestApi:
    return make(RestApi, "slurm", RESTAPI + extra)


def loginset(extra: str = "") -> LoginSet:
    return make(LoginSet, "slurm-login-slinky", LOGINSET + extra)


def login_pod(name: str, address: str, phase: str = "Running") -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="slurm"), status=PodStatus(phase=phase, pod_ip=address))


def nodeset(extra: str = "", name: str = "slurm-worker-slinky") -> NodeSet:
    return make(NodeSet, name, NODESET + extra)


def token(extra: str = "") -> Token:
    return make(Token, "alice", TOKEN + extra)
