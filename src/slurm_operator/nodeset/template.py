"""Build the template that the workers of a NodeSet share, or say why no worker can be built from it."""

from collections.abc import Iterator

from slurm_operator.admission.placement import placement_problems
from slurm_operator.admission.problem import Problem
from slurm_operator.admission.validate_pods import claim_problems, container_problems, pod_problems
from slurm_operator.api import NodeSet
from slurm_operator.desired.worker import (
    WorkerFacts,
    node_slot,
    ordinal_slot,
    worker_claims,
    worker_pod,
    worker_template,
)
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.trouble import Trouble

INVALID = "InvalidTemplate"
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""What building raises for fields of the wrong shape, which the CRD's schema leaves open."""


def placement_flaw(nodeset: NodeSet) -> Trouble | None:
    """Return why it cannot be told to which Kubernetes Nodes the workers belong."""
    found = next(placement_problems(nodeset.spec.template.spec, "spec.template.spec"), None)
    return _trouble(nodeset, str(found)) if found is not None else None


def build_template(nodeset: NodeSet, facts: WorkerFacts) -> Manifest | Trouble:
    """Return what all workers share, once one worker could be built from it."""
    daemons = nodeset.spec.scaling_mode == "DaemonSet"
    slot = node_slot(nodeset, "node") if daemons else ordinal_slot(nodeset, 0)
    try:
        template = worker_template(nodeset, facts)
        worker_claims(nodeset, slot)
        worker_pod(nodeset, template, slot, "", "")
    except _MALFORMED as error:
        found = next(_problems(nodeset), None)
        return _trouble(nodeset, str(found) if found is not None else f"{error}; correct spec.template")
    return template


def _problems(nodeset: NodeSet) -> Iterator[Problem]:
    """Yield what is wrong, with its place: an error in the middle of building does not tell."""
    spec = nodeset.spec
    yield from container_problems(spec.slurmd, "spec.slurmd")
    yield from container_problems(spec.logfile, "spec.logfile")
    for name, container in (("slurmd", spec.slurmd), ("logfile", spec.logfile)):
        if not container.get("image"):
            yield Problem(f"spec.{name}.image", "image is missing", "name the image that the container runs")
    yield from pod_problems(spec.template.spec, ("logfile", "slurmd"), "spec.template.spec")
    yield from claim_problems(spec.volume_claim_templates, "spec.volumeClaimTemplates")


def _trouble(nodeset: NodeSet, why: str) -> Trouble:
    return Trouble(INVALID, f"NodeSet {'/'.join(nodeset.key)}: no worker can be created: {why}")
