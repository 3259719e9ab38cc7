"""The `api_server` fixture itself: what every other test of this ring stands on."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from slurm_local.apiserver import ApiServer


def kubectl(server: ApiServer, *arguments: str, kubeconfig: Path | None = None) -> str:
    command = server.kubectl(*arguments, *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []))
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_serves_the_pinned_version(api_server: ApiServer) -> None:
    version = json.loads(kubectl(api_server, "version", "-o", "json"))

    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"]


def test_other_users_are_held_to_their_permissions(api_server: ApiServer, namespace: str) -> None:
    nobody = api_server.kubeconfig_for("nobody", "nobody")

    with pytest.raises(subprocess.CalledProcessError) as denied:
        kubectl(api_server, "get", "secrets", "-n", namespace, kubeconfig=nobody)

    assert "forbidden" in denied.value.stderr.lower()


def test_keeps_its_data_over_a_kill_of_both_programs(api_server: ApiServer, namespace: str) -> None:
    kubectl(api_server, "create", "configmap", "kept", "-n", namespace, "--from-literal=a=b")

    api_server.stop()
    api_server.start()

    assert kubectl(api_server, "get", "configmap", "kept", "-n", namespace, "-o", "jsonpath={.data.a}") == "b"


def test_is_ready_within_seconds(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    started = time.monotonic()
    try:
        server.start()
        assert time.monotonic() - started < 20
    finally:
        server.stop()
