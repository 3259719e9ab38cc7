"""A real API server accepts and understands everything that the builders make; applying it again changes nothing."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from slurm_local.apiserver import ApiServer
from slurm_operator.kube.resource import Manifest

GOLDEN = Path(__file__).parents[1] / "unit" / "desired" / "golden"
FOREIGN = {"ServiceMonitor"}  # kinds that a bare cluster does not know
MADE_ONCE = ("PersistentVolumeClaim/", "Pod/")  # created and never applied again


def manifests(path: Path, namespace: str) -> list[Manifest]:
    return [
        {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if manifest["kind"] not in FOREIGN
    ]


def apply(server: ApiServer, objects: list[Manifest]) -> dict[str, str]:
    """Applies all of them; their versions by kind and name."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    command = server.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", "-o", "json")
    done = subprocess.run(command, input=json.dumps(listed), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for item in answer.get("items", [answer])
    }


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_everything_is_accepted_and_stays(path: Path, api_server: ApiServer, namespace: str) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    objects = [account, *manifests(path, namespace)]  # no controller-manager runs here that would make it
    first = apply(api_server, objects)
    assert len(first) == len(objects)
    again = apply(api_server, objects)
    assert {name for name in first if first[name] != again[name] and not name.startswith(MADE_ONCE)} == set()
