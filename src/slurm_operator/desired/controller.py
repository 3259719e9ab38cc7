"""What a Controller wants to exist: the configuration of the cluster, slurmctld, and the Services in front of it.

Clients must reach the active slurmctld also while the operator is away. A single slurmctld therefore carries the
active label from birth. With standbys the Service selects on no such label: only the active daemon answers /readyz,
so that readiness alone decides who gets the traffic. A standby is then never ready, which a rolling update would wait
for in vain: that StatefulSet is replaced pod by pod by whoever deletes them (`OnDelete`), standbys first.
"""

from typing import Any

from slurm_operator.api import Controller, names
from slurm_operator.api.common import Metadata, ServiceSpec
from slurm_operator.api.controller import MetricEndpoint
from slurm_operator.api.meta import without_nulls
from slurm_operator.desired import metadata, pod
from slurm_operator.desired.config import ControllerFacts, config_hash, delivered_files, referenced
from slurm_operator.desired.dns import full_name
from slurm_operator.desired.scripts import script
from slurm_operator.desired.service import LOGIN_PORT, headless_service, member_service, port, service
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.writer import STATE_DIR

METRIC_PATHS = ("/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler")
DEFAULT_CLAIM: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}


def controller_objects(controller: Controller, facts: ControllerFacts) -> list[Manifest]:
    """Everything but the ServiceMonitor, whose kind a cluster may not know."""
    if controller.spec.external:
        return [config_map(controller, facts)]
    return [
        internal_service(controller),
        logins_service(controller),
        client_service(controller),
        *member_services(controller),
        config_map(controller, facts),
        stateful_set(controller, facts),
    ]


def labels(controller: Controller) -> dict[str, str]:
    return metadata.labels(names.APP_SLURMCTLD, names.COMPONENT_CONTROLLER, controller.metadata.name)


def selector(controller: Controller) -> dict[str, str]:
    return names.selector(names.APP_SLURMCTLD, controller.metadata.name)


def internal_service(controller: Controller) -> Manifest:
    """Gives every slurmctld pod its DNS name."""
    meta = metadata.child(controller, names.controller_internal(controller.metadata.name), labels(controller))
    daemon = port("slurmctld", names.PORT_SLURMCTLD, "slurmctld")
    return headless_service(meta, selector(controller), daemon)


def logins_service(controller: Controller) -> Manifest:
    """Names the login pods: a Deployment gives its pods none. The LoginSets keep the list of who is there."""
    name = names.logins_service(controller.metadata.name)
    return headless_service(metadata.child(controller, name, labels(controller)), {}, LOGIN_PORT)


def member_services(controller: Controller) -> list[Manifest]:
    """With standbys, an address for each slurmctld that is known also while its pod is not there."""
    if not controller.spec.high_availability:
        return []
    pods = [names.controller_pod(controller.metadata.name, ordinal) for ordinal in range(controller.spec.replicas)]
    daemon = port("slurmctld", names.PORT_SLURMCTLD, "slurmctld")
    return [
        member_service(
            metadata.child(controller, pod_name, labels(controller)),
            {**selector(controller), "statefulset.kubernetes.io/pod-name": pod_name},
            daemon,
        )
        for pod_name in pods
    ]


def client_service(controller: Controller) -> Manifest:
    """What clients connect to, at the user's port; within the cluster always at the usual one too."""
    wish: ServiceSpec = controller.spec.service
    number = wish.port or names.PORT_SLURMCTLD
    ports = [port("slurmctld", number, "slurmctld", wish.node_port)]
    if number != names.PORT_SLURMCTLD:
        ports.append(port(f"slurmctld-{names.PORT_SLURMCTLD}", names.PORT_SLURMCTLD, "slurmctld"))
    meta = metadata.child(
        controller,
        names.controller(controller.metadata.name),
        {**labels(controller), names.LABEL_ACTIVE: names.TRUE},
        wish.metadata,
    )
    return service(meta, wish, {**selector(controller), **active_label(controller)}, *ports)


def active_label(controller: Controller) -> dict[str, str]:
    """The label that marks a lone slurmctld as the active one; with standbys, readiness does."""
    return {} if controller.spec.high_availability else {names.LABEL_ACTIVE: names.TRUE}


def config_map(controller: Controller, facts: ControllerFacts) -> Manifest:
    extra = controller.spec.template.metadata if controller.spec.external else None
    meta = metadata.child(controller, names.config(controller.metadata.name), labels(controller), extra)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": delivered_files(controller, facts)}


def stateful_set(controller: Controller, facts: ControllerFacts) -> Manifest:
    spec = controller.spec
    if spec.high_availability and not (spec.persistence.enabled and spec.persistence.existing_claim):
        raise ValueError("ha needs persistence.enabled and persistence.existingClaim: a ReadWriteMany claim")
    name = names.controller(controller.metadata.name)
    meta = metadata.child(controller, name, labels(controller), spec.template.metadata)
    body: dict[str, Any] = {
        "replicas": spec.replicas,
        # In order, a pod that cannot start would never be replaced by the one that mends it.
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 0,
        "serviceName": names.controller_internal(controller.metadata.name),
        "selector": {"matchLabels": selector(controller)},
        "template": _pod_template(controller, facts),
    }
    if spec.high_availability:
        body["updateStrategy"] = {"type": "OnDelete"}
    in_force = facts.claim_templates
    if templates := claim_templates(controller) if in_force is None else list(in_force):
        body["volumeClaimTemplates"] = templates
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": body}


def claim_templates(controller: Controller) -> list[Manifest]:
    """The claim that the Controller asks for, unless it brings its own or wants none."""
    if not controller.spec.persistence.enabled or controller.spec.persistence.existing_claim:
        return []
    claim = {**DEFAULT_CLAIM, **without_nulls(controller.spec.persistence.claim_spec())}
    return [{"metadata": {"name": "statesave"}, "spec": claim}]


def _pod_template(controller: Controller, facts: ControllerFacts) -> Manifest:
    spec = controller.spec
    hashes = {names.ANNOTATION_SLURM_KEY_HASH: facts.slurm_key_hash, names.ANNOTATION_JWT_KEY_HASH: facts.jwt_key_hash}
    if not spec.inplace_reconfigure:
        hashes[names.ANNOTATION_SLURM_CONFIG_HASH] = config_hash(controller, facts)
    pod_labels = {**labels(controller), **active_label(controller)}
    meta = metadata.pod(controller, pod_labels, spec.template.metadata, hashes, "slurmctld")
    sidecars = [_reconfigure(controller)] if spec.inplace_reconfigure else []
    ours: Manifest = {
        "automountServiceAccountToken": False,
        "securityContext": pod.pod_context(names.UID_SLURM),
        "dnsConfig": {"searches": _names_of_clients(controller, facts.domain)},
        "initContainers": [*sidecars, pod.log_sidecar("slurmctld", spec.logfile)],
        "containers": [_slurmctld(controller)],
        "volumes": _volumes(controller),
    }
    if spec.high_availability:
        apart = pod.hostname_anti_affinity({"matchLabels": selector(controller)})
        ours["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return {"metadata": meta, "spec": pod.finished(ours, spec.template.spec, confined=True)}


def _names_of_clients(controller: Controller, domain: str) -> list[str]:
    """slurmctld calls back an srun by the bare name of its pod, and all of Slurm waits while that does not resolve."""
    services = (names.workers_service(controller.metadata.name), names.logins_service(controller.metadata.name))
    return [full_name(service, controller.metadata.namespace, domain) for service in services]


def _slurmctld(controller: Controller) -> Manifest:
    standbys = controller.spec.high_availability
    hooks = {} if controller.spec.inplace_reconfigure else {"lifecycle": {"postStart": _restarted(controller)}}
    return pod.container(
        "slurmctld",
        controller.spec.slurmctld,
        ports=[pod.port("slurmctld", names.PORT_SLURMCTLD)],
        startupProbe=pod.http_probe("/livez", "slurmctld", **pod.STARTING),
        livenessProbe=pod.http_probe("/livez", "slurmctld", **pod.PATIENT),
        # With standbys this is the failover: the sooner it is asked, the sooner clients reach the new one.
        readinessProbe=pod.http_probe("/readyz", "slurmctld", **(pod.OFTEN if standbys else {})),
        securityContext=pod.container_context(names.UID_SLURM, controller.spec.template.spec),
        volumeMounts=[
            pod.CONF_MOUNT,
            pod.mount("run", "/run", read_only=False),
            pod.mount("statesave", _state(controller), read_only=False),
            pod.mount("slurm-authsocket", "/run/slurmctld", read_only=False),
            pod.LOG_MOUNT,
        ],
        **hooks,
    )


def _state(controller: Controller) -> str:
    return f"{STATE_DIR}/{controller.cluster_name}"


def _told(controller: Controller) -> str:
    return f"TOLD={_state(controller)}/told-configuration\n{script('told')}"


def _restarted(controller: Controller) -> Manifest:
    """Has the workers follow a slurmctld that came back with other files."""
    words = f"PORT={names.PORT_SLURMCTLD}\n{_told(controller)}{script('restarted')}"
    # A hook that fails ends its container: an image without bash does without this one.
    return {"exec": {"command": ["sh", "-c", 'bash -c "$0" || :', words]}}


def _reconfigure(controller: Controller) -> Manifest:
    """Tells slurmctld when the files that it mounts have changed."""
    return pod.container(
        "reconfigure",
        controller.spec.reconfigure,
        command=["tini", "-g", "--", "bash", "-c", _told(controller) + script("reconfigure")],
        restartPolicy="Always",
        volumeMounts=[
            pod.CONF_MOUNT,
            pod.mount("statesave", _state(controller), read_only=False),
            pod.mount("slurm-authsocket", "/run/slurmctld"),
        ],
    )


def _volumes(controller: Controller) -> list[Manifest]:
    spec = controller.spec
    files = pod.projected(
        "slurm-etc",
        pod.PRIVATE_BUT_EXECUTABLE,
        *pod.all_of([names.config(controller.metadata.name)]),
        *pod.from_key_ring(spec.slurm_key_ref),
        *pod.from_secret(spec.jwt_key, "jwt.key"),
        *pod.all_of(referenced(controller)),
        *pod.from_config_map(spec.jwks_key_ref, "jwks.json"),
    )
    volumes = [files, pod.LOG_VOLUME, pod.memory("run"), pod.scratch("slurm-authsocket")]
    if spec.persistence.enabled and spec.persistence.existing_claim:
        claim = {"claimName": spec.persistence.existing_claim}
        volumes.append({"name": "statesave", "persistentVolumeClaim": claim})
    elif not spec.persistence.enabled:
        volumes.append(pod.scratch("statesave"))
    return volumes


def service_monitor(controller: Controller) -> Manifest | None:
    """What Prometheus should scrape, or None. It selects the client Service alone, or all would be scraped twice."""
    metrics = controller.spec.metrics
    monitor = metrics.service_monitor
    if controller.spec.external or not metrics.enabled or not monitor.enabled:
        return None
    wished = Metadata(labels=monitor.labels, annotations=monitor.annotations)
    meta = metadata.child(controller, names.controller(controller.metadata.name), labels(controller), wished)
    scraped = monitor.endpoints or tuple(MetricEndpoint(path=path) for path in METRIC_PATHS)
    spec = {
        "selector": {"matchLabels": {**selector(controller), names.LABEL_ACTIVE: names.TRUE}},
        "namespaceSelector": {"matchNames": [controller.metadata.namespace]},
        "endpoints": [_scrape(endpoint, monitor.interval, monitor.scrape_timeout) for endpoint in scraped],
    }
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": meta, "spec": spec}


def _scrape(endpoint: MetricEndpoint, interval: str, timeout: str) -> Manifest:
    timing = {"interval": endpoint.interval or interval, "scrapeTimeout": endpoint.scrape_timeout or timeout}
    return {
        "port": "slurmctld",
        "scheme": "http",
        "path": endpoint.path,
        **{key: value for key, value in timing.items() if value},
    }
