"""RestApi: slurmrestd, the door through which the operator and others talk to Slurm."""

from slurm_operator.api.common import Container, LocalObjectReference, PodTemplate, Replicas, ServiceSpec, Status
from slurm_operator.api.kind import AGE, READY, STATUS, WAITING, Kind, Object
from slurm_operator.api.meta import Defaulted, OrDefault, Required, Spec


class RestApiSpec(Spec):
    """What the REST daemon should look like."""

    controller_ref: Required[LocalObjectReference] = LocalObjectReference()
    """The Controller whose cluster is served."""
    replicas: Defaulted[Replicas] = 1
    """How many slurmrestd pods."""
    slurmrestd: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the generated slurmrestd container; must give the image."""
    template: OrDefault[PodTemplate] = PodTemplate()
    """What to add to the slurmrestd pods."""
    service: OrDefault[ServiceSpec] = ServiceSpec()
    """What to change in the Service of slurmrestd."""


class RestApiStatus(Status):
    """What the operator last observed of slurmrestd."""


class RestApi(Object):
    """The REST API of a cluster: slurmrestd."""

    spec: OrDefault[RestApiSpec] = RestApiSpec()
    """What the REST daemon should look like."""
    status: OrDefault[RestApiStatus] = RestApiStatus()
    """What the operator last observed."""


RESTAPI: Kind[RestApi] = Kind(
    type=RestApi,
    plural="restapis",
    short_names=("slurmrestd",),
    columns=(READY, STATUS, AGE, WAITING),
)
