"""Where daemons are reached, whether they run here or elsewhere."""

from slurm_operator.api import Accounting, Controller, RestApi, names
from slurm_operator.api.common import ExternalConfig
from slurm_operator.desired.dns import short_name
from slurm_operator.slurm.conf.writer import Endpoint


def slurmctld(controller: Controller) -> Endpoint:
    """For clients and for `--conf-server`. The Service answers at the usual port whatever its own port is."""
    if controller.spec.external:
        return _external(controller.spec.external_config)
    service = names.controller(controller.metadata.name)
    return Endpoint(short_name(service, controller.metadata.namespace), names.PORT_SLURMCTLD)


def accounting(resource: Accounting) -> Endpoint:
    """For slurmctld, which lives in the same namespace."""
    if resource.spec.external:
        return _external(resource.spec.external_config)
    return Endpoint(names.accounting(resource.metadata.name), resource.spec.service.port or names.PORT_SLURMDBD)


def slurmrestd(resource: RestApi) -> Endpoint:
    """For the operator itself."""
    service = names.restapi(resource.metadata.name)
    return Endpoint(
        short_name(service, resource.metadata.namespace), resource.spec.service.port or names.PORT_SLURMRESTD
    )


def conf_server(controller: Controller) -> str:
    endpoint = slurmctld(controller)
    return f"{endpoint.host}:{endpoint.port}"


def _external(config: ExternalConfig | None) -> Endpoint:
    if config is None:
        raise ValueError("externalConfig is missing: external is true, so give the host and port of the daemon")
    return Endpoint(config.host, config.port)
