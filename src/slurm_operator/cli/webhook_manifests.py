"""The webhook's own objects. A webhook that is dead must never stop anybody's pods, nor the operator itself:

- validating (failurePolicy Fail) matches our six kinds only, and only when a spec is created or changed, so that
  finalizers, labels, status and deletion go through;
- defaulting (Ignore) adds what the schema would add anyway;
- binding (off unless asked for, Ignore, short timeout) must see every binding, as bindings carry no labels to select
  by: leave it to the namespaces that hold workers with `namespaces`, where that is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slurm_operator.admission.binding import PATH as BINDING_PATH
from slurm_operator.admission.certs_secret import SECRET
from slurm_operator.admission.review import VERSIONS
from slurm_operator.admission.reviewer import default_path, validate_path
from slurm_operator.api import KINDS, Kind, Object, names
from slurm_operator.cli.manifests import BUILD, IMAGE, build
from slurm_operator.kube.resource import Manifest

NAME: Final = "slurm-operator-webhook"
PORT: Final = 9443
TIMEOUT_SECONDS: Final = 10
BINDING_TIMEOUT_SECONDS: Final = 3
LABELS: Final = {names.LABEL_APP: NAME}
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
_RBAC: Final = "rbac.authorization.k8s.io"
_REGISTRATION: Final = "admissionregistration.k8s.io"
_CERT_DIR: Final = "/certificates"

SPEC_CHANGED: Final[Manifest] = {
    "name": "spec-changed",
    "expression": "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec",
}
NOT_DRY: Final[Manifest] = {"name": "not-a-dry-run", "expression": "!has(request.dryRun) || !request.dryRun"}


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    namespace: str
    image: str = IMAGE
    replicas: int = 1
    namespaces: Sequence[str] = ()
    """Judge, and serve bindings of, these namespaces only; all if empty."""
    binding: bool = False
    """Copy the topology of Nodes to workers as they are bound, instead of a moment later."""
    certificate: str = ""
    """Certificate of cert-manager, and the Secret it writes; without one the webhook has its own authority."""


def webhook_manifests(options: WebhookOptions) -> list[Manifest]:
    """In the order in which they are to be applied: once the pods are ready, the API server trusts them."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(options.namespace)},
        _role("ClusterRole", cluster_rules(options)),
        _role_binding("ClusterRole", options.namespace),
        _role("Role", secret_rules(), options.namespace),
        _role_binding("Role", options.namespace),
        _service(options),
        validating_configuration(options),
        mutating_configuration(options),
        *([_budget(options)] if options.replicas > 1 else []),
        _deployment(options),
    ]


def cluster_rules(options: WebhookOptions) -> list[Manifest]:
    """To read what manifests refer to, and to say in its own configurations whom to trust."""
    configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    rules: list[Manifest] = [
        {"apiGroups": [""], "resources": ["configmaps", "persistentvolumeclaims"], "verbs": ["get"]},
        {
            "apiGroups": [_REGISTRATION],
            "resources": configurations,
            "resourceNames": [NAME],
            "verbs": ["get", "patch"],
        },
    ]
    if options.binding:
        rules += [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},
        ]
    return rules


def secret_rules() -> list[Manifest]:
    """Its own keys; who may create cannot be limited to a name."""
    return [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]


def validating_configuration(options: WebhookOptions) -> Manifest:
    webhooks = [
        {
            "name": f"{kind.singular}-{names.VERSION}.kb.io",
            **_about(kind, options),
            "clientConfig": _client(options, validate_path(kind)),
            "failurePolicy": "Fail",
        }
        for kind in KINDS
    ]
    return _configuration("ValidatingWebhookConfiguration", options, webhooks)


def mutating_configuration(options: WebhookOptions) -> Manifest:
    webhooks = [
        {
            "name": f"{kind.singular}-defaults-{names.VERSION}.kb.io",
            **_about(kind, options),
            "clientConfig": _client(options, default_path(kind)),
            "failurePolicy": "Ignore",
        }
        for kind in KINDS
    ]
    return _configuration(
        "MutatingWebhookConfiguration", options, [*webhooks, *([_binding_webhook(options)] if options.binding else [])]
    )


def _about(kind: Kind[Object], options: WebhookOptions) -> Manifest:
    """What both webhooks of a kind have in common."""
    rule = {
        "apiGroups": [names.GROUP],
        "apiVersions": [names.VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [kind.plural],
        "scope": "Namespaced",
    }
    return {
        "rules": [rule],
        "admissionReviewVersions": _review_versions(),
        "matchPolicy": "Equivalent",
        "matchConditions": [SPEC_CHANGED],
        "namespaceSelector": _selector(options.namespaces, SYSTEM_NAMESPACES),
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }


def _binding_webhook(options: WebhookOptions) -> Manifest:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
        "scope": "Namespaced",
    }
    return {
        "name": "podsbinding-v1.kb.io",
        "rules": [rule],
        "admissionReviewVersions": _review_versions(),
        "clientConfig": _client(options, BINDING_PATH),
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "matchConditions": [NOT_DRY],
        # Its own pods must be bound while it does not run yet, without waiting for it.
        "namespaceSelector": _selector(options.namespaces, (*SYSTEM_NAMESPACES, options.namespace)),
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": BINDING_TIMEOUT_SECONDS,
    }


def _configuration(kind: str, options: WebhookOptions, webhooks: list[Manifest]) -> Manifest:
    meta = _meta()
    if options.certificate:
        meta["annotations"] = {"cert-manager.io/inject-ca-from": f"{options.namespace}/{options.certificate}"}
    return {"apiVersion": f"{_REGISTRATION}/v1", "kind": kind, "metadata": meta, "webhooks": webhooks}


def _review_versions() -> list[str]:
    return [version.rpartition("/")[2] for version in VERSIONS]


def _client(options: WebhookOptions, path: str) -> Manifest:
    return {"service": {"name": NAME, "namespace": options.namespace, "path": path, "port": 443}}


def _selector(only: Sequence[str], never: Sequence[str]) -> Manifest:
    label = "kubernetes.io/metadata.name"
    expressions: list[Manifest] = [{"key": label, "operator": "NotIn", "values": list(never)}]
    if only:
        expressions.append({"key": label, "operator": "In", "values": list(only)})
    return {"matchExpressions": expressions}


def _meta(namespace: str = "") -> Manifest:
    meta: Manifest = {"name": NAME, "labels": LABELS}
    return {**meta, "namespace": namespace} if namespace else meta


def _role(kind: str, rules: list[Manifest], namespace: str = "") -> Manifest:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": _meta(namespace), "rules": rules}


def _role_binding(role: str, namespace: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role}Binding",
        "metadata": _meta(namespace if role == "Role" else ""),
        "roleRef": {"apiGroup": _RBAC, "kind": role, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _service(options: WebhookOptions) -> Manifest:
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    spec = {"selector": LABELS, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(options.namespace), "spec": spec}


def _budget(options: WebhookOptions) -> Manifest:
    spec = {"minAvailable": 1, "selector": {"matchLabels": LABELS}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(options.namespace),
        "spec": spec,
    }


def _deployment(options: WebhookOptions) -> Manifest:
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    if options.certificate:
        volumes.append({"name": "certificate", "secret": {"secretName": options.certificate}})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(options.namespace),
        "spec": {
            "replicas": options.replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS, "annotations": {BUILD: build()}},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [_container(options)],
                    "volumes": volumes,
                },
            },
        },
    }


def _container(options: WebhookOptions) -> Manifest:
    arguments = ["webhook", f"--server-addr=:{PORT}"]
    mounts: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a volume of this pod alone
    if options.namespaces:
        arguments.append(f"--namespaces={','.join(options.namespaces)}")
    if options.certificate:
        arguments.append(f"--cert-dir={_CERT_DIR}")
        mounts.append({"name": "certificate", "mountPath": _CERT_DIR, "readOnly": True})
    return {
        "name": NAME,
        "image": options.image,
        "args": arguments,
        "ports": [{"name": "https", "containerPort": PORT}, {"name": "health", "containerPort": 8081}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
