"""What users get wrong, on the real stage: told where and how to mend it, and healed as soon as it is mended."""

from typing import Any

import pytest

from slurm_operator.cli.keys import key_secret
from slurm_operator.errors import UserError
from tests.e2e.small import Small, database, part, script, volumes_and_users, wait_degraded
from tests.e2e.stage import Cluster

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(operator: Cluster, namespace: str) -> Small:
    """An empty namespace."""
    return Small(operator, namespace)


def keys(place: Small) -> dict[str, Any]:
    return key_secret("slurm-keys", place.namespace)


def controller(**spec: Any) -> dict[str, Any]:
    return part("Controller", **{"accountingRef": None, "persistence": {"enabled": False}, **spec})


def test_a_missing_secret_is_named_and_its_arrival_heals(place: Small) -> None:
    place.apply(*volumes_and_users(), controller())
    wait_degraded(
        place, "controller", "slurm", "SecretNotFound", f"{place.namespace}/slurm-keys", "create it", "slurm.key"
    )
    place.apply(keys(place))
    place.wait_ready("controller/slurm", timeout=60)
    assert place.condition("controller", "slurm", "Degraded")["status"] == "False"


def test_a_missing_config_map_is_named_and_its_arrival_heals(place: Small) -> None:
    with pytest.raises(
        UserError, match=r"spec.configFileRefs\[0\].name: ConfigMap slurm-files does not exist: create it"
    ):
        place.apply(keys(place), controller())
    place.apply(*volumes_and_users(), controller(prologScriptRefs=[{"name": "greet"}]))
    wait_degraded(place, "controller", "slurm", "ConfigMapNotFound", f"{place.namespace}/greet", "create it")
    place.apply(script("greet", "exit 0"))
    place.wait_ready("controller/slurm", timeout=60)


def test_a_wrong_password_and_an_unknown_host_of_the_database(place: Small) -> None:
    place.apply(keys(place), *database(), *volumes_and_users())
    accounting = part("Accounting")
    storage = accounting["spec"]["storageConfig"]
    wrong = {**storage, "passwordKeyRef": {"name": "wrong", "key": "password"}}
    place.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": {"password": "no"}})
    place.apply(part("Accounting", storageConfig=wrong))
    wait_degraded(
        place, "accounting", "slurm", "DatabaseUnreachable", "slurm-mariadb:3306/slurm_acct_db", "password", timeout=90
    )
    place.apply(part("Accounting", storageConfig={**storage, "host": "nowhere"}))
    wait_degraded(place, "accounting", "slurm", "DatabaseUnreachable", "nowhere:3306", "storageConfig.host", timeout=90)
    place.apply(accounting)
    place.wait_ready("accounting/slurm", timeout=90)
    assert place.condition("accounting", "slurm", "Degraded")["status"] == "False"


def test_a_missing_image_is_named_and_the_right_one_heals(place: Small) -> None:
    wrong = controller(slurmctld={"image": "localhost/no/such:image"})
    place.apply(keys(place), *volumes_and_users(), wrong)
    wait_degraded(place, "controller", "slurm", "ErrImagePull", "localhost/no/such:image", "image's name", timeout=60)
    place.apply(controller())
    place.wait_ready("controller/slurm", timeout=90)


def test_pods_that_a_quota_forbids_are_explained_and_a_restricted_namespace_runs_the_daemons(place: Small) -> None:
    place.cluster.kubectl("label", "namespace", place.namespace, "pod-security.kubernetes.io/enforce=restricted")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    place.apply(quota, keys(place), *volumes_and_users(), controller(), part("RestApi"))
    wait_degraded(
        place,
        "controller",
        "slurm",
        "FailedCreate",
        "slurm-controller",
        "exceeded quota: none",
        "raise the ResourceQuota",
    )
    wait_degraded(place, "restapi", "slurm", "FailedCreate", "slurm-restapi", "exceeded quota: none")
    place.kubectl("delete", "resourcequota", "none")
    for kind in ("controller", "restapi"):
        place.wait_ready(f"{kind}/slurm", timeout=90)
        assert place.condition(kind, "slurm", "Degraded")["status"] == "False"


def test_a_claim_that_nobody_provides(place: Small) -> None:
    storage = {"enabled": True, "resources": {"requests": {"storage": "1Gi"}}}
    wrong = controller(persistence={**storage, "storageClassName": "nowhere"})
    place.apply(keys(place), *volumes_and_users(), wrong)
    wait_degraded(
        place, "controller", "slurm", "ClaimNotBound", "statesave-slurm-controller-0", "storageClassName", timeout=60
    )
    provide(place, "nowhere")
    place.wait_ready("controller/slurm", timeout=90)


def provide(place: Small, storage_class: str) -> None:
    """A volume of that class by hand, in the folder of the claim `home` that nobody uses here."""
    home = place.cluster.kubectl.json("get", "pv", place.get("pvc", "home")["spec"]["volumeName"])["spec"]
    kept = {key: home[key] for key in ("local", "nodeAffinity", "capacity")}
    spec = {**kept, "storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
    name = {"name": f"by-hand-{place.namespace}"}
    place.cluster.kubectl.apply([{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": name, "spec": spec}])


@pytest.mark.parametrize(("kind", "name"), [("RestApi", "slurm"), ("LoginSet", "login")])
def test_a_controller_that_does_not_exist(place: Small, kind: str, name: str) -> None:
    place.apply(keys(place), *volumes_and_users(), part(kind, name))
    cure = ("does not exist", "controllerRef")
    reason = "ControllerRefFailed"
    wait_degraded(place, kind.lower(), name, reason, f"Controller {place.namespace}/slurm", *cure, timeout=30)
    place.apply(controller())
    place.wait_ready(f"{kind.lower()}/{name}", timeout=90)
    assert place.condition(kind.lower(), name, "Degraded")["status"] == "False"
