"""The configuration of a cluster: the files that a Controller generates, and those that its user adds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_operator.api import Accounting, Controller, NodeSet, names
from slurm_operator.api.common import LocalObjectReference
from slurm_operator.desired import endpoints
from slurm_operator.desired.dns import DEFAULT_DOMAIN, short_name
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.parser import parse
from slurm_operator.slurm.conf.writer import (
    Host,
    NodeGroup,
    Scripts,
    SlurmConf,
    cgroup_conf,
    extra_line,
    max_node_count,
    minimal_slurm_conf,
    slurm_conf,
    stamped,
)

Files = Mapping[str, str]

_RESERVED = frozenset({"slurmdbd.conf", "slurm.key", "slurm.jwks", "jwt.key", "jwks.json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFacts:
    """What the cluster around a Controller looks like."""

    accounting: Accounting | None = None
    nodesets: tuple[NodeSet, ...] = ()
    retired: tuple[NodeGroup, ...] = ()  # groups whose partition stays although no NodeSet asks for it
    standing: tuple[str, ...] = ()  # names of the groups in force, in their order
    config_maps: Mapping[str, Files] = field(default_factory=dict)  # data of the referenced ConfigMaps, by name
    slurm_key_hash: str = ""
    jwt_key_hash: str = ""
    domain: str = DEFAULT_DOMAIN
    max_node_count: int = 0  # what slurmctld runs with, so that it never shrinks
    claim_templates: tuple[Manifest, ...] | None = None  # in force, if not as asked: Kubernetes cannot change them


def configuration(controller: Controller, facts: ControllerFacts) -> dict[str, str]:
    """Every file that slurmctld reads but the keys: what to lint, and what a restart depends on."""
    files = generated_files(controller, facts)
    for name in referenced(controller):
        for file, text in facts.config_maps.get(name, {}).items():
            if file in files or file in _RESERVED:
                raise ValueError(f"ConfigMap {name}: {file} would hide another file; rename or remove it")
            files[file] = text
    return files


def generated_files(controller: Controller, facts: ControllerFacts) -> dict[str, str]:
    accounting = endpoints.accounting(facts.accounting) if facts.accounting is not None else None
    if controller.spec.external:
        slurmctld = endpoints.slurmctld(controller)
        return {"slurm.conf": minimal_slurm_conf(controller.cluster_name, slurmctld, accounting)}
    conf = SlurmConf(
        cluster_name=controller.cluster_name,
        hosts=tuple(_host(controller, ordinal) for ordinal in range(controller.spec.replicas)),
        service=endpoints.slurmctld(controller).host,
        accounting=accounting,
        jwks=controller.spec.jwks_key_ref is not None,
        metrics=controller.spec.metrics.enabled,
        max_nodes=max_node_count(_workers(facts.nodesets), facts.max_node_count),
        scripts=_scripts(controller, facts.config_maps),
        groups=_groups(facts),
        extra=controller.spec.extra_conf,
    )
    files = {"slurm.conf": slurm_conf(conf)}
    if not any("cgroup.conf" in facts.config_maps.get(ref.name, {}) for ref in controller.spec.config_file_refs):
        files["cgroup.conf"] = cgroup_conf()
    return files


def config_hash(controller: Controller, facts: ControllerFacts) -> str:
    """Return the hash of every file that slurmctld reads but the keys."""
    return content_hash(configuration(controller, facts))


def place_of(controller: Controller, facts: ControllerFacts, file: str, number: int) -> str:
    """Name a line of the configuration by the field or the ConfigMap in which a user has written it."""
    generated = generated_files(controller, facts)
    if file not in generated:
        maps = (name for name in referenced(controller) if file in facts.config_maps.get(name, {}))
        where = f"ConfigMap {next(maps, '')}, {file}"
        return f"{where} line {number}" if number else where
    text, extra = generated[file], controller.spec.extra_conf
    if file == "slurm.conf" and number:
        if (own := extra_line(text, extra, number)) is not None:
            return f"extraConf line {own}"
        partition = parse(text.split("\n")[number - 1]).get("PartitionName")
        found = (nodeset for nodeset in facts.nodesets if nodeset.slurm_name == partition)
        if (nodeset := next(found, None)) is not None:
            return f"partition.config of NodeSet {nodeset.metadata.name}"
    return f"{file}:{number}" if number else file


def delivered_files(controller: Controller, facts: ControllerFacts) -> dict[str, str]:
    """Return the generated files as they are mounted: slurm.conf with the hash of the whole configuration."""
    files = generated_files(controller, facts)
    if not controller.spec.external:
        files["slurm.conf"] = stamped(files["slurm.conf"], config_hash(controller, facts))
    return files


def referenced(controller: Controller) -> list[str]:
    """Names of the user's ConfigMaps, each once and in a stable order."""
    return sorted({ref.name for ref in (*controller.spec.config_file_refs, *controller.spec.script_refs)})


def _host(controller: Controller, ordinal: int) -> Host:
    """At the address of a Service. The pod's own name is unknown while there is no pod, and all commands would wait."""
    host = names.controller_pod(controller.metadata.name, ordinal)
    service = host if controller.spec.high_availability else names.controller(controller.metadata.name)
    return Host(host, short_name(service, controller.metadata.namespace))


def _workers(nodesets: Iterable[NodeSet]) -> int:
    return sum(max(nodeset.spec.replicas, nodeset.status.desired, nodeset.status.replicas) for nodeset in nodesets)


def wanted_groups(nodesets: Iterable[NodeSet]) -> tuple[NodeGroup, ...]:
    """One group per name: a second partition of the same name would keep slurmctld from starting."""
    groups: dict[str, NodeGroup] = {}
    for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.metadata.name):
        group = NodeGroup(nodeset.slurm_name, _partition(nodeset))
        if groups.setdefault(group.name, group).partition is None:
            groups[group.name] = group
    return tuple(groups.values())


def defined_partitions(controller: Controller, config_maps: Mapping[str, Files]) -> frozenset[str]:
    """Names of the partitions in the administrator's own text."""
    included = {file: text for name in referenced(controller) for file, text in config_maps.get(name, {}).items()}
    conf = parse(controller.spec.extra_conf, resolve=included.get)
    return frozenset(line.value for line in conf.all("PartitionName"))


def _groups(facts: ControllerFacts) -> tuple[NodeGroup, ...]:
    groups = {group.name: group for group in wanted_groups(facts.nodesets)}
    if not facts.retired:
        return tuple(groups.values())
    own = [group for group in facts.retired if group.own]
    for group in facts.retired:
        if not group.own and groups.setdefault(group.name, group).partition is None:
            groups[group.name] = group
    # In the order in force: where a group is merely kept, the text does not change and slurmctld does not restart.
    place = {name: number for number, name in enumerate(facts.standing)}
    return tuple(sorted([*groups.values(), *own], key=lambda group: place.get(group.name, len(place))))


def _partition(nodeset: NodeSet) -> str | None:
    partition = nodeset.spec.partition
    return (partition.config or "") if partition is not None and partition.enabled else None


def _scripts(controller: Controller, config_maps: Mapping[str, Files]) -> Scripts:
    def pooled(refs: Iterable[LocalObjectReference]) -> tuple[str, ...]:
        return tuple(sorted({file for ref in refs for file in config_maps.get(ref.name, {})}))

    spec = controller.spec
    return Scripts(
        prolog=pooled(spec.prolog_script_refs),
        epilog=pooled(spec.epilog_script_refs),
        prolog_slurmctld=pooled(spec.prolog_slurmctld_script_refs),
        epilog_slurmctld=pooled(spec.epilog_slurmctld_script_refs),
    )
