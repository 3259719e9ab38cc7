"""What an Accounting wants to exist: slurmdbd with its configuration and Service. An external one wants nothing."""

from base64 import b64encode
from dataclasses import dataclass

from slurm_operator.api import Accounting, names
from slurm_operator.desired import metadata, pod
from slurm_operator.desired.service import port, service
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.writer import Endpoint, SlurmdbdConf, slurmdbd_conf


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingFacts:
    password: str
    slurm_key_hash: str = ""
    jwt_key_hash: str = ""


def accounting_objects(accounting: Accounting, facts: AccountingFacts) -> list[Manifest]:
    if accounting.spec.external:
        return []
    conf = configuration(accounting, facts)
    return [_service(accounting), _secret(accounting, conf), _stateful_set(accounting, facts, conf)]


def configuration(accounting: Accounting, facts: AccountingFacts) -> str:
    """slurmdbd.conf, with the database's password in it."""
    storage = accounting.spec.storage_config
    if storage is None:
        raise ValueError("storageConfig is missing: slurmdbd needs a database")
    return slurmdbd_conf(
        SlurmdbdConf(
            host=f"{names.accounting(accounting.metadata.name)}-0",
            storage=Endpoint(storage.host, storage.effective_port),
            database=storage.effective_database,
            user=storage.username,
            password=facts.password,
            jwks=accounting.spec.jwks_key_ref is not None,
            extra=accounting.spec.extra_conf,
        )
    )


def _labels(accounting: Accounting) -> dict[str, str]:
    return metadata.labels(names.APP_SLURMDBD, names.COMPONENT_ACCOUNTING, accounting.metadata.name)


def _selector(accounting: Accounting) -> dict[str, str]:
    return names.selector(names.APP_SLURMDBD, accounting.metadata.name)


def _service(accounting: Accounting) -> Manifest:
    wish = accounting.spec.service
    meta = metadata.child(accounting, names.accounting(accounting.metadata.name), _labels(accounting), wish.metadata)
    daemon = port("slurmdbd", wish.port or names.PORT_SLURMDBD, "slurmdbd", wish.node_port)
    return service(meta, wish, _selector(accounting), daemon)


def _secret(accounting: Accounting, conf: str) -> Manifest:
    meta = metadata.child(accounting, names.accounting(accounting.metadata.name), _labels(accounting))
    data = {"slurmdbd.conf": b64encode(conf.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data}


def _stateful_set(accounting: Accounting, facts: AccountingFacts, conf: str) -> Manifest:
    name = names.accounting(accounting.metadata.name)
    template = accounting.spec.template
    hashes = {
        names.ANNOTATION_SLURM_KEY_HASH: facts.slurm_key_hash,
        names.ANNOTATION_JWT_KEY_HASH: facts.jwt_key_hash,
        names.ANNOTATION_SLURMDBD_CONF_HASH: metadata.content_hash({"slurmdbd.conf": conf}),
    }
    ours = {
        "automountServiceAccountToken": False,
        "securityContext": pod.pod_context(names.UID_SLURM),
        "containers": [_slurmdbd(accounting)],
        "volumes": [_files(accounting), pod.memory("run")],
    }
    spec = {
        "replicas": 1,
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 0,
        "serviceName": name,
        "selector": {"matchLabels": _selector(accounting)},
        "template": {
            "metadata": metadata.pod(accounting, _labels(accounting), template.metadata, hashes, "slurmdbd"),
            "spec": pod.finished(ours, template.spec, confined=True),
        },
    }
    meta = metadata.child(accounting, name, _labels(accounting), template.metadata)
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}


def _slurmdbd(accounting: Accounting) -> Manifest:
    return pod.container(
        "slurmdbd",
        accounting.spec.slurmdbd,
        ports=[pod.port("slurmdbd", names.PORT_SLURMDBD)],
        readinessProbe=pod.tcp_probe(names.PORT_SLURMDBD, **pod.OFTEN),
        securityContext=pod.container_context(names.UID_SLURM, accounting.spec.template.spec),
        volumeMounts=[pod.CONF_MOUNT, pod.mount("run", "/run", read_only=False)],
    )


def _files(accounting: Accounting) -> Manifest:
    name = names.accounting(accounting.metadata.name)
    return pod.projected(
        "slurm-etc",
        pod.PRIVATE,
        {"secret": {"name": name, "items": [{"key": "slurmdbd.conf", "path": "slurmdbd.conf"}]}},
        *pod.from_key_ring(accounting.spec.slurm_key_ref),
        *pod.from_secret(accounting.spec.jwt_key, "jwt.key"),
        *pod.from_config_map(accounting.spec.jwks_key_ref, "jwks.json"),
    )
