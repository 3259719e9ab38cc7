"""Brings a Node's Slurm topology to the worker pod at the moment that the scheduler binds the two.

The annotation is there before the kubelet starts slurmd, so a worker knows its place from the first boot. The
binding itself is never changed, and pods of anybody else are never held up.
"""

from typing import Final

from slurm_operator.admission.facts import is_name
from slurm_operator.admission.problem import Problem
from slurm_operator.admission.review import Request, Verdict
from slurm_operator.api import names
from slurm_operator.kube import NODES, PODS, ApiError, Client, NotFound, Pod

PATH: Final = "/mutate--v1-binding"
_ALLOWED: Final = Verdict()


class Binder:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def bound(self, request: Request) -> Verdict:
        if request.dry_run or request.operation != "CREATE" or request.object is None:
            return _ALLOWED
        pod_name, node_name = _ends(request)
        if not is_name(pod_name) or not is_name(node_name) or not is_name(request.namespace):
            return _ALLOWED
        try:
            # Other failures end in a 500: the webhook is set to Ignore, so a pod that may be anybody's is bound.
            pod = await self._client.get(PODS, pod_name, request.namespace)
        except NotFound:
            problem = Problem("metadata.name", f"there is no Pod {pod_name} to bind", "it was deleted meanwhile")
            return Verdict([problem], code=404, reason="NotFound")
        if pod.metadata.labels.get(names.LABEL_APP) != names.APP_SLURMD:
            return _ALLOWED
        try:
            await self._copy_topology(pod, node_name)
        except ApiError as error:
            hint = "the scheduler tries again"
            problem = Problem("target.name", f"the topology of Node {node_name} was not copied: {error.message}", hint)
            return Verdict([problem], code=503, reason="ServiceUnavailable")
        return _ALLOWED

    async def _copy_topology(self, pod: Pod, node_name: str) -> None:
        try:
            node = await self._client.get(NODES, node_name)
        except NotFound:
            return
        topology = node.metadata.annotations.get(names.ANNOTATION_TOPOLOGY, "")
        if pod.metadata.annotations.get(names.ANNOTATION_TOPOLOGY) == topology:
            return
        # The uid makes sure that a pod of the same name, made meanwhile, is not taken for this one.
        annotations = {names.ANNOTATION_TOPOLOGY: topology}
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        await self._client.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace)


def _ends(request: Request) -> tuple[str, str]:
    """Names of the pod and of the Node; "" for what the binding does not say."""
    binding = request.object or {}
    metadata, target = binding.get("metadata"), binding.get("target")
    pod = metadata.get("name") if isinstance(metadata, dict) else None
    node = target.get("name") if isinstance(target, dict) else None
    return str(pod or request.name), str(node or "")
