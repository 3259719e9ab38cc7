"""What a RestApi wants to exist: slurmrestd and its Service."""

from dataclasses import dataclass

from slurm_operator.api import Controller, RestApi, names
from slurm_operator.desired import metadata, pod
from slurm_operator.desired.service import port, service
from slurm_operator.kube.resource import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class RestApiFacts:
    controller: Controller
    slurm_conf_hash: str = ""


def restapi_objects(restapi: RestApi, facts: RestApiFacts) -> list[Manifest]:
    return [_service(restapi), _deployment(restapi, facts)]


def _labels(restapi: RestApi) -> dict[str, str]:
    return metadata.labels(names.APP_SLURMRESTD, names.COMPONENT_RESTAPI, restapi.metadata.name)


def _selector(restapi: RestApi) -> dict[str, str]:
    return names.selector(names.APP_SLURMRESTD, restapi.metadata.name)


def _service(restapi: RestApi) -> Manifest:
    wish = restapi.spec.service
    meta = metadata.child(restapi, names.restapi(restapi.metadata.name), _labels(restapi), wish.metadata)
    daemon = port("slurmrestd", wish.port or names.PORT_SLURMRESTD, "slurmrestd", wish.node_port)
    return service(meta, wish, _selector(restapi), daemon)


def _deployment(restapi: RestApi, facts: RestApiFacts) -> Manifest:
    template = restapi.spec.template
    hashes = {names.ANNOTATION_SLURM_CONFIG_HASH: facts.slurm_conf_hash}
    ours = {
        "automountServiceAccountToken": False,
        "securityContext": pod.pod_context(names.UID_NOBODY),
        "containers": [_slurmrestd(restapi, facts.controller)],
        "volumes": [_files(facts.controller)],
    }
    spec = {
        "replicas": restapi.spec.replicas,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": _selector(restapi)},
        "template": {
            "metadata": metadata.pod(restapi, _labels(restapi), template.metadata, hashes, "slurmrestd"),
            "spec": pod.finished(ours, template.spec, confined=True),
        },
    }
    meta = metadata.child(restapi, names.restapi(restapi.metadata.name), _labels(restapi), template.metadata)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def _slurmrestd(restapi: RestApi, controller: Controller) -> Manifest:
    daemon = pod.container(
        "slurmrestd",
        restapi.spec.slurmrestd,
        args=[] if controller.spec.accounting_name else ["-s", "openapi/slurmctld"],
        env=[
            {"name": "SLURM_JWT", "value": "daemon"},
            {"name": "SLURMRESTD_SECURITY", "value": "disable_unshare_files,disable_unshare_sysv"},
            # Lists of nodes are big, and glibc's arenas keep them: 2 GB instead of 0.4 GB at ten thousand nodes.
            {"name": "MALLOC_ARENA_MAX", "value": "1"},
        ],
        ports=[pod.port("slurmrestd", names.PORT_SLURMRESTD)],
        startupProbe=pod.tcp_probe(names.PORT_SLURMRESTD, **pod.STARTING),
        livenessProbe=pod.tcp_probe(names.PORT_SLURMRESTD, **pod.PATIENT),
        readinessProbe=pod.tcp_probe(names.PORT_SLURMRESTD),
        securityContext=pod.container_context(names.UID_NOBODY, restapi.spec.template.spec),
        volumeMounts=[pod.CONF_MOUNT],
    )
    return {**daemon, "args": [*daemon.get("args", []), f"0.0.0.0:{names.PORT_SLURMRESTD}"]}


def _files(controller: Controller) -> Manifest:
    """slurm.conf and what it may include. No key: whoever asks brings a token, and slurmctld judges it."""
    config = names.config(controller.metadata.name)
    included = () if controller.spec.external else sorted({ref.name for ref in controller.spec.config_file_refs})
    return pod.projected(
        "slurm-etc",
        pod.PRIVATE,
        {"configMap": {"name": config, "items": [{"key": "slurm.conf", "path": "slurm.conf"}]}},
        *pod.all_of(included),
    )
