"""What works but is unwise, is ignored, or will not work the way it looks."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from slurm_operator.admission.defaults import Manifest, admitted
from slurm_operator.admission.problem import Facts, Warn
from slurm_operator.admission.validate import load
from slurm_operator.admission.validate_pods import CONTAINER, POD
from slurm_operator.admission.validate_schema import join, unknown_fields, unknown_text
from slurm_operator.api import Accounting, Controller, Kind, LoginSet, NodeSet, Object, RestApi, Token, names
from slurm_operator.api.common import KeyReferences, ServiceSpec
from slurm_operator.api.crd import schema
from slurm_operator.api.ignored import ignored_fields
from slurm_operator.api.token import TokenSpec
from slurm_operator.api.values import report_waiting
from slurm_operator.slurm.conf.lint import Finding, lint_lines, lint_slurmdbd

KNOWN_FILES: Final = frozenset(
    {"acct_gather.conf", "burst_buffer.conf", "cgroup.conf", "cli_filter.lua", "gres.conf", "helpers.conf"}
    | {"job_container.conf", "job_submit.lua", "mpi.conf", "namespace.yaml", "oci.conf", "plugstack.conf"}
    | {"topology.conf", "topology.yaml"}
)
"""Files beside slurm.conf that Slurm reads."""
_RESERVED_ARGUMENTS: Final = ("-Z", "--conf", "--conf-server", "-N", "-f")
_RESERVED: Final = frozenset({"slurm.conf", "slurmdbd.conf"})


def warnings(kind: Kind[Object], new: Manifest, facts: Facts | None = None) -> list[Warn]:
    """Everything worth a second look. Says nothing about objects that cannot even be read."""
    try:
        typed = load(kind, new)
    except msgspec.ValidationError:
        return []
    unknown = () if admitted(kind, new).fits else unknown_fields(schema(kind), new)
    ignored = (Warn(field.path, field.message) for field in ignored_fields(typed))
    return [*unknown, *_of_kind(typed, facts or Facts()), *ignored]


def _of_kind(new: Object, facts: Facts) -> Iterator[Warn]:
    match new:
        case Controller():
            yield from _of_controller(new, facts)
        case Accounting():
            yield from _of_accounting(new)
        case NodeSet():
            yield from _of_nodeset(new)
        case LoginSet():
            yield from _of_containers(login=new.spec.login, initconf=new.spec.initconf)
            yield from _of_pod(new.spec.template.spec)
            yield from _of_service(new.spec.service)
        case RestApi():
            if not new.spec.controller_ref.name:
                yield Warn("spec.controllerRef.name", "names no Controller, so nothing will run")
            yield from _of_containers(slurmrestd=new.spec.slurmrestd)
            yield from _of_pod(new.spec.template.spec)
            yield from _of_service(new.spec.service)
        case Token():
            yield from _of_keys(new.spec)
            if new.spec.lifetime_seconds == 0:
                yield Warn("spec.lifetime", "a token that is never valid")
        case _:
            return


def _of_controller(new: Controller, facts: Facts) -> Iterator[Warn]:
    spec = new.spec
    yield from _of_keys(spec)
    yield from _of_service(spec.service)
    if spec.external:
        if spec.high_availability:
            yield Warn("spec.ha", "has no effect on an external Controller")
        return
    images = {"slurmctld": spec.slurmctld, "logfile": spec.logfile}
    if spec.inplace_reconfigure:
        images["reconfigure"] = spec.reconfigure
    yield from _of_containers(**images)
    yield from _of_pod(spec.template.spec)
    if spec.template.spec.get("hostNetwork"):
        yield Warn("spec.template.spec.hostNetwork", "slurmctld is found by its pod address; leave hostNetwork out")
    if spec.cluster_name != spec.cluster_name.lower():
        yield Warn("spec.clusterName", "the accounting database knows lower case only")
    yield from _of_lines(lint_lines(spec.extra_conf))
    for index, ref in enumerate(spec.config_file_refs):
        for file in sorted((facts.config_maps.get(ref.name) or frozenset()) - KNOWN_FILES - _RESERVED):
            yield Warn(f"spec.configFileRefs[{index}].name", f"ConfigMap {ref.name}: Slurm does not know a file {file}")


def _of_accounting(new: Accounting) -> Iterator[Warn]:
    spec = new.spec
    yield from _of_keys(spec)
    yield from _of_service(spec.service)
    if spec.external:
        return
    if spec.storage_config is None:
        yield Warn("spec.storageConfig", "is missing, so slurmdbd has no database to write to")
    yield from _of_containers(slurmdbd=spec.slurmdbd)
    yield from _of_pod(spec.template.spec)
    if spec.template.spec.get("hostNetwork"):
        yield Warn("spec.template.spec.hostNetwork", "slurmdbd is found by its pod address; leave hostNetwork out")
    yield from _of_lines(lint_slurmdbd(spec.extra_conf))


def _of_nodeset(new: NodeSet) -> Iterator[Warn]:
    spec = new.spec
    yield from _of_containers(slurmd=spec.slurmd, logfile=spec.logfile)
    yield from _of_pod(spec.template.spec)
    if spec.template.spec.get("hostNetwork"):
        yield Warn("spec.template.spec.hostNetwork", "Slurm nodes are called like their Kubernetes Nodes then")
    yield from _of_annotations(new.metadata.annotations)
    if "." in spec.template.hostname:
        yield Warn("spec.template.spec.hostname", "Kubernetes refuses pods whose host name has a dot")
    if spec.scaling_mode == "DaemonSet" and spec.replicas != 1:
        yield Warn("spec.replicas", "is ignored in DaemonSet mode")
    if not (_limits(spec.slurmd) or _limits(spec.template.spec)):
        yield Warn("spec.slurmd.resources.limits", "is missing: Slurm will use all CPUs and memory of the Node")
    arguments = spec.slurmd.get("args")
    for index, argument in enumerate(arguments if isinstance(arguments, list) else ()):
        if isinstance(argument, str) and argument.partition("=")[0] in _RESERVED_ARGUMENTS:
            yield Warn(f"spec.slurmd.args[{index}]", f"{argument} contradicts what the operator passes; use extraConf")


def _of_annotations(notes: Mapping[str, str]) -> Iterator[Warn]:
    after, degrades = names.ANNOTATION_REPORT_WAITING, names.ANNOTATION_WAITING_DEGRADES
    if after in notes and report_waiting(notes) is None:
        message = f"{notes[after]!r} is no duration such as 30m; --report-waiting-after of the operator holds"
        yield Warn(f"metadata.annotations[{after}]", message)
    if notes.get(degrades, names.TRUE) not in (names.TRUE, "false"):
        yield Warn(f"metadata.annotations[{degrades}]", f"{notes[degrades]!r} counts as false; write true or false")


def _limits(part: Mapping[str, Any]) -> bool:
    resources = part.get("resources")
    return isinstance(resources, dict) and bool(resources.get("limits"))


def _of_keys(spec: KeyReferences | TokenSpec) -> Iterator[Warn]:
    if spec.jwt_key is not None and not spec.jwt_key.name:
        yield Warn("spec.jwtKeyRef.name", "names no Secret, so nothing can start")
    if isinstance(spec, KeyReferences) and spec.slurm_key_ref is not None and not spec.slurm_key_ref.name:
        yield Warn("spec.slurmKeyRef.name", "names no Secret, so nothing can start")
    if spec.jwt_hs256_key_ref is not None:
        ignored = spec.jwt_key_ref is not None
        yield Warn("spec.jwtHs256KeyRef", "is ignored beside jwtKeyRef" if ignored else "is deprecated; use jwtKeyRef")


def _of_service(service: ServiceSpec) -> Iterator[Warn]:
    if service.spec.get("externalIPs"):
        yield Warn("spec.service.spec.externalIPs", "is dropped: it lets a Service take over foreign addresses")


def _of_containers(**containers: Mapping[str, Any]) -> Iterator[Warn]:
    for name, container in containers.items():
        path = f"spec.{name}"
        if not container.get("image"):
            yield Warn(f"{path}.image", "is missing, so the pod cannot start")
        if container.get("name") not in (None, "", name):
            yield Warn(f"{path}.name", f"the container is always called {name}")
        yield from _unknown(container, CONTAINER, path)


def _of_pod(spec: Mapping[str, Any]) -> Iterator[Warn]:
    yield from _unknown(spec, POD, "spec.template.spec")


def _unknown(part: Mapping[str, Any], known: Mapping[str, Any], path: str) -> Iterator[Warn]:
    for name in part:
        if name not in known:
            yield Warn(join(path, name), unknown_text(name, known))


def _of_lines(findings: list[Finding]) -> Iterator[Warn]:
    for finding in findings:
        yield Warn("spec.extraConf", f"line {finding.line}: {finding.message}")
