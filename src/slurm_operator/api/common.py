"""Types that several kinds share. A string below a field is its description in the CRD."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from slurm_operator.api.meta import Defaulted, Model, Nullable, OrDefault, Required, Spec
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.syntax import (
    CONFIG_KEY,
    HOST,
    NOT_NEGATIVE,
    OBJECT_NAME,
    PORT,
    PORT_OR_AUTOMATIC,
)
from slurm_operator.api.values import QUANTITY_PATTERN, IntOrString

Container = dict[str, Any]
"""A core/v1 Container as the user wrote it."""
PodSpec = dict[str, Any]
"""A core/v1 PodSpec as the user wrote it."""

Text = Annotated[str, checked(maxLength=262144)]
"""Free text of several lines."""
Replicas = Annotated[int, checked(NOT_NEGATIVE, format="int32")]
"""How many pods; written by autoscalers too."""
Quantity = Annotated[IntOrString, checked(pattern=QUANTITY_PATTERN, maxLength=64)]
"""An amount such as `4Gi`."""
PrometheusDuration = Annotated[
    str,
    checked(
        pattern=r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
        maxLength=64,
    ),
]
"""A duration as Prometheus spells it, such as `30s`."""

_ATOMIC = {"x-kubernetes-map-type": "atomic"}


class LocalObjectReference(Spec):
    """Names an object of the same namespace."""

    schema: ClassVar[dict[str, Any]] = _ATOMIC

    name: Defaulted[Annotated[str, checked(OBJECT_NAME, maxLength=253)]] = ""
    """Name of the object."""


class SecretKeySelector(Spec):
    """Names one key of a Secret of the same namespace."""

    schema: ClassVar[dict[str, Any]] = _ATOMIC

    name: Defaulted[Annotated[str, checked(OBJECT_NAME, maxLength=253)]] = ""
    """Name of the Secret."""
    key: Required[Annotated[str, checked(CONFIG_KEY, maxLength=253)]] = ""
    """Key within the Secret's data."""
    optional: OrDefault[bool] = False
    """Accepted for compatibility and ignored: the key must exist."""


class ConfigMapKeySelector(Spec):
    """Names one key of a ConfigMap of the same namespace."""

    schema: ClassVar[dict[str, Any]] = _ATOMIC

    name: Defaulted[Annotated[str, checked(OBJECT_NAME, maxLength=253)]] = ""
    """Name of the ConfigMap."""
    key: Required[Annotated[str, checked(CONFIG_KEY, maxLength=253)]] = ""
    """Key within the ConfigMap's data."""
    optional: OrDefault[bool] = False
    """Accepted for compatibility and ignored: the key must exist."""


class ExternalConfig(Spec):
    """How to reach a daemon that runs outside of Kubernetes."""

    host: Required[Annotated[str, checked(HOST, maxLength=253)]] = ""
    """Host name or IP address of the daemon."""
    port: Required[Annotated[int, checked(PORT)]] = 0
    """TCP port of the daemon."""


class Metadata(Spec):
    """Labels and annotations to add to generated objects."""

    labels: Nullable[dict[str, str]] = {}
    """Labels to add."""
    annotations: Nullable[dict[str, str]] = {}
    """Annotations to add."""


class PodTemplate(Spec):
    """What to add to the generated pods."""

    metadata: OrDefault[Metadata] = Metadata()
    """Labels and annotations of the pods."""
    spec: OrDefault[PodSpec] = {}
    """A core/v1 PodSpec that is merged over the generated one."""


class ServiceSpec(Spec):
    """What to change in the generated Service."""

    metadata: OrDefault[Metadata] = Metadata()
    """Labels and annotations of the Service."""
    spec: OrDefault[dict[str, Any]] = {}
    """A core/v1 ServiceSpec that the generated ports and selector are added to; externalIPs are dropped."""
    port: OrDefault[Annotated[int, checked(PORT_OR_AUTOMATIC)]] = 0
    """Port that the Service listens on; 0 or absent means the daemon's usual port."""
    node_port: OrDefault[Annotated[int, checked(PORT_OR_AUTOMATIC)]] = 0
    """Port on every Kubernetes Node, for Services of type NodePort; 0 or absent lets Kubernetes choose."""


class Condition(Model):
    """One observation about the resource, as Kubernetes tools expect it."""

    type: Required[
        Annotated[
            str,
            checked(
                maxLength=316,
                pattern=(
                    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                ),
            ),
        ]
    ] = ""
    """What is observed, in CamelCase."""
    status: Required[Literal["True", "False", "Unknown"]] = "Unknown"
    """Whether it holds."""
    reason: Required[
        Annotated[str, checked(minLength=1, maxLength=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    ] = ""
    """Why, in one CamelCase word that programs may match."""
    message: Required[Annotated[str, checked(maxLength=32768)]] = ""
    """Why, in words for people."""
    last_transition_time: Annotated[str | None, checked(format="date-time", **{"x-required": True})] = None
    """When the status last changed."""
    observed_generation: Annotated[int, checked(format="int64", minimum=0)] = 0
    """Generation of the spec that this was observed for."""

    @property
    def is_true(self) -> bool:
        return self.status == "True"


Conditions = Annotated[
    tuple[Condition, ...],
    checked(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class Status(Spec):
    """What the operator last observed."""

    conditions: OrDefault[Conditions] = ()
    """Ready, Progressing and Degraded say how the resource is doing."""
    observed_generation: OrDefault[Annotated[int, checked(format="int64")]] = 0
    """Generation of the spec that the status belongs to."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever reported."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class KeyReferences(Spec):
    """The keys of a cluster, as Controller and Accounting refer to them."""

    slurm_key_ref: SecretKeySelector | None = None
    """Secret with the auth/slurm key that all daemons of the cluster share."""
    jwt_key_ref: SecretKeySelector | None = None
    """Secret with the HMAC key that signs JSON Web Tokens."""
    jwt_hs256_key_ref: SecretKeySelector | None = None
    """Deprecated spelling of jwtKeyRef, used only if that is absent."""
    jwks_key_ref: ConfigMapKeySelector | None = None
    """ConfigMap with a JWKS document, to accept tokens that somebody else issued."""
    external: Defaulted[bool] = False
    """The daemon runs outside of Kubernetes: only what others need to reach it is generated."""
    external_config: ExternalConfig | None = None
    """Where the daemon is, if it is external."""

    @property
    def jwt_key(self) -> SecretKeySelector | None:
        """The reference in force, whichever field holds it."""
        return self.jwt_key_ref or self.jwt_hs256_key_ref


CONTROLLER_NEEDS_NAME = Rule(
    cel="self.controllerRef.name != ''",
    holds=lambda spec: spec.controller_ref.name != "",
    message="controllerRef.name is missing",
    hint="name the Controller of this namespace to join",
    path=".controllerRef",
    reason="FieldValueRequired",
)
CONTROLLER_STAYS = Rule(
    cel="self.controllerRef.name == oldSelf.controllerRef.name",
    holds=lambda spec, old: spec.controller_ref.name == old.controller_ref.name,
    message="controllerRef cannot be changed",
    hint="create a new object for the other cluster instead",
    path=".controllerRef",
    reason="FieldValueForbidden",
)
NEEDS_SLURM_KEY = Rule(
    cel="self.external || has(self.slurmKeyRef)",
    holds=lambda spec: spec.external or spec.slurm_key_ref is not None,
    message="slurmKeyRef is missing",
    hint="name the Secret and key that hold the auth/slurm key, or set external: true",
    path=".slurmKeyRef",
    reason="FieldValueRequired",
)
NEEDS_JWT_KEY = Rule(
    cel="self.external || has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)",
    holds=lambda spec: spec.external or spec.jwt_key is not None,
    message="jwtKeyRef is missing",
    hint="name the Secret and key that hold the auth/jwt key, or set external: true",
    path=".jwtKeyRef",
    reason="FieldValueRequired",
)
NEEDS_EXTERNAL_CONFIG = Rule(
    cel="!self.external || has(self.externalConfig)",
    holds=lambda spec: not spec.external or spec.external_config is not None,
    message="externalConfig is missing",
    hint="external is true, so give the host and port of the daemon",
    path=".externalConfig",
    reason="FieldValueRequired",
)
_JWT_KEY = (
    "(has({0}.jwtKeyRef) ? {0}.jwtKeyRef.name + '/' + {0}.jwtKeyRef.key"
    " : has({0}.jwtHs256KeyRef) ? {0}.jwtHs256KeyRef.name + '/' + {0}.jwtHs256KeyRef.key : '')"
)
JWT_KEY_STAYS = Rule(
    cel=f"{_JWT_KEY.format('oldSelf')} in ['', {_JWT_KEY.format('self')}]",
    holds=lambda spec, old: old.jwt_key is None or _same_key(spec.jwt_key, old.jwt_key),
    message="the JWT key reference cannot be changed",
    hint="replace the content of the Secret to rotate the key",
    path=".jwtKeyRef",
    reason="FieldValueForbidden",
)


def _same_key(new: SecretKeySelector | None, old: SecretKeySelector) -> bool:
    return new is not None and (new.name, new.key) == (old.name, old.key)


class DataSource(Spec):
    """What to fill a new volume from."""

    schema: ClassVar[dict[str, Any]] = _ATOMIC

    api_group: str | None = None
    """API group of the source; absent means core."""
    kind: Required[str] = ""
    """Kind of the source."""
    name: Required[str] = ""
    """Name of the source."""


class DataSourceRef(DataSource):
    """What to fill a new volume from, by a populator."""

    schema: ClassVar[dict[str, Any]] = {}

    namespace: str | None = None
    """Namespace of the source, where Kubernetes allows another one."""


class VolumeResources(Spec):
    """How much storage."""

    limits: dict[str, Quantity] | None = None
    """Most that the volume may have."""
    requests: dict[str, Quantity] | None = None
    """Least that the volume must have."""


class LabelRequirement(Spec):
    """One condition on labels."""

    key: Required[str] = ""
    """Label that the condition is about."""
    operator: Required[str] = ""
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[str, ...] | None, checked(**{"x-kubernetes-list-type": "atomic"})] = None
    """Values to compare with."""


class LabelSelector(Spec):
    """Picks objects by their labels."""

    schema: ClassVar[dict[str, Any]] = _ATOMIC

    match_expressions: Annotated[
        tuple[LabelRequirement, ...] | None, checked(**{"x-kubernetes-list-type": "atomic"})
    ] = None
    """Conditions that must all hold."""
    match_labels: dict[str, str] | None = None
    """Labels that must all be there."""


class ClaimSpec(Spec):
    """The fields of a core/v1 PersistentVolumeClaimSpec."""

    access_modes: Annotated[tuple[str, ...] | None, checked(**{"x-kubernetes-list-type": "atomic"})] = None
    """How the volume may be mounted, for example ReadWriteOnce."""
    data_source: DataSource | None = None
    """Snapshot or claim to copy from."""
    data_source_ref: DataSourceRef | None = None
    """Object to fill the volume from."""
    resources: VolumeResources | None = None
    """Size of the volume."""
    selector: LabelSelector | None = None
    """Which volumes are considered."""
    storage_class_name: str | None = None
    """Storage class; empty means none, absent means the cluster's default."""
    volume_attributes_class_name: str | None = None
    """Class of changeable volume attributes."""
    volume_mode: str | None = None
    """Filesystem or Block."""
    volume_name: str | None = None
    """A particular volume."""

    def claim_spec(self) -> dict[str, Any]:
        """Only the claim's own fields, as Kubernetes spells them, without those that are absent."""
        own = {field.encode_name for field in msgspec.structs.fields(ClaimSpec)}
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {key: value for key, value in plain.items() if key in own}
