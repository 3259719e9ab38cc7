"""LoginSet: the hosts on which users log in with ssh and submit jobs."""

from typing import Annotated, ClassVar

from slurm_operator.api.common import (
    CONTROLLER_NEEDS_NAME,
    CONTROLLER_STAYS,
    Container,
    LocalObjectReference,
    PodTemplate,
    Replicas,
    SecretKeySelector,
    ServiceSpec,
    Status,
    Text,
)
from slurm_operator.api.kind import AGE, READY, STATUS, WAITING, Column, Kind, Object
from slurm_operator.api.meta import Defaulted, OrDefault, Required, Spec
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.values import IntOrString

IntOrPercent = Annotated[IntOrString, checked(maxLength=64)]

STRATEGY_TYPE = Rule(
    cel="self in ['', 'RollingUpdate', 'Recreate']",
    holds=lambda kind: kind in ("", "RollingUpdate", "Recreate"),
    message="not a way to replace pods",
    hint="write RollingUpdate or Recreate",
)
NEEDS_SSSD = Rule(
    cel="!has(self.sssdConfRef) || self.sssdConfRef.name != ''",
    holds=lambda spec: spec.sssd_conf_ref.name != "",
    message="sssdConfRef.name is missing",
    hint="name the Secret that holds sssd.conf",
    path=".sssdConfRef",
    reason="FieldValueRequired",
)


class RollingUpdateDeployment(Spec):
    """How many pods at once."""

    max_surge: IntOrPercent | None = None
    """Pods that may exist beyond the wanted number."""
    max_unavailable: IntOrPercent | None = None
    """Pods that may be missing."""


class DeploymentStrategy(Spec):
    """How pods are replaced."""

    type: OrDefault[Annotated[str, checked(STRATEGY_TYPE, maxLength=64)]] = ""
    """RollingUpdate or Recreate."""
    rolling_update: RollingUpdateDeployment | None = None
    """Limits of a rolling update."""


class LoginSetSpec(Spec):
    """What the login hosts should look like."""

    rules: ClassVar[tuple[Rule, ...]] = (CONTROLLER_NEEDS_NAME, CONTROLLER_STAYS, NEEDS_SSSD)

    controller_ref: Required[LocalObjectReference] = LocalObjectReference()
    """The Controller whose cluster users log in to. Cannot be changed later."""
    replicas: Defaulted[Replicas] = 1
    """How many login pods."""
    login: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the generated login container; must give the image."""
    initconf: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the init container that stages /etc/slurm; must give the image."""
    template: OrDefault[PodTemplate] = PodTemplate()
    """What to add to the login pods."""
    root_ssh_authorized_keys: OrDefault[Text] = ""
    """Public keys that may log in as root, one per line."""
    extra_sshd_config: OrDefault[Text] = ""
    """Lines to add to sshd_config."""
    sssd_conf_ref: Required[SecretKeySelector] = SecretKeySelector()
    """Secret with sssd.conf, which says where users come from."""
    strategy: OrDefault[DeploymentStrategy] = DeploymentStrategy()
    """How login pods are replaced."""
    service: OrDefault[ServiceSpec] = ServiceSpec()
    """What to change in the Service that users connect to."""


class LoginSetStatus(Status):
    """What the operator last observed of the login hosts."""

    replicas: OrDefault[Annotated[int, checked(format="int32")]] = 0
    """Pods that exist."""
    selector: Required[str] = ""
    """Label selector of the pods, for autoscalers."""


class LoginSet(Object):
    """Login hosts of a cluster: sackd, sshd and sssd."""

    spec: OrDefault[LoginSetSpec] = LoginSetSpec()
    """What the login hosts should look like."""
    status: OrDefault[LoginSetStatus] = LoginSetStatus()
    """What the operator last observed."""


LOGINSET: Kind[LoginSet] = Kind(
    type=LoginSet,
    plural="loginsets",
    short_names=("loginsets", "lss", "sackd"),
    columns=(Column("REPLICAS", ".status.replicas"), READY, STATUS, AGE, WAITING),
    scalable=True,
)
