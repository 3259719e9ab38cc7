"""kubeconfig: read as kubectl reads it, and every mistake in it told in one line."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_operator.errors import UserError
from slurm_operator.kube import load
from slurm_operator.kube.config import in_cluster


def document(context: str = "main", **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "c", "cluster": {"server": "https://c:6443/", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "slurm"}},
            {"name": "bare", "context": {"cluster": "c"}},
        ],
        "current-context": context,
    }


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_the_current_context(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document(token="t0ken"))
    config = load(path)
    assert config.server == "https://c:6443"
    assert config.namespace == "slurm"
    assert config.source == f"{path}, context 'main'"
    assert config.ca is not None
    assert config.ca.file == tmp_path / "ca.crt", "relative to the file that names it"
    assert config.token is not None
    assert config.token.read() == b"t0ken"


def test_another_context(tmp_path: Path) -> None:
    config = load(write(tmp_path / "config", document(token="t")), "bare")
    assert (config.namespace, config.token) == ("default", None)


def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    user = {"client-certificate-data": data, "client-certificate": "x", "client-key-data": data}
    config = load(write(tmp_path / "config", document(**user)))
    assert config.certificate is not None
    assert config.certificate.read() == b"PEM"
    assert config.certificate.origin == "the kubeconfig"
    assert config.certificate.modified == 0.0


def test_a_token_file_and_its_change(tmp_path: Path) -> None:
    config = load(write(tmp_path / "config", document(tokenFile="token")))
    assert config.token is not None
    with pytest.raises(UserError, match=r"cannot read .*/token: No such file"):
        config.token.read()
    assert config.token.modified == 0.0
    (tmp_path / "token").write_text("t")
    assert config.token.modified > 0.0


def test_an_exec_plugin(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./login",
        "args": ["-x"],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "get it there",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    config = load(write(tmp_path / "config", document(exec=plugin)))
    assert config.exec is not None
    assert config.exec.command == str(tmp_path / "login")
    assert (config.exec.args, config.exec.env) == (("-x",), (("A", "b"),))
    assert config.exec.cluster is not None
    assert config.exec.cluster["server"] == "https://c:6443/"


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "one", {"current-context": "bare", "clusters": None})
    second = write(tmp_path / "two", document("main"))
    third = write(
        tmp_path / "three",
        {"clusters": [{"name": "c", "cluster": {"server": "https://other"}}], "current-context": "x"},
    )
    missing = str(tmp_path / "missing")
    config = load(env={"KUBECONFIG": os.pathsep.join((missing, first, second, third))})
    assert config.server == "https://c:6443"
    assert config.source.endswith("context 'bare'")


def test_the_home_directory_and_the_pod_come_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", document())
    assert load(env={"HOME": str(tmp_path)}).server == "https://c:6443"


def test_inside_a_pod(tmp_path: Path) -> None:
    for name, content in (("token", "t\n"), ("ca.crt", "PEM"), ("namespace", "ops\n")):
        (tmp_path / name).write_text(content)
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    config = in_cluster(env, tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:6443", "ops")
    assert config.token is not None
    assert config.token.file == tmp_path / "token"
    (tmp_path / "namespace").unlink()
    assert in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path).server == "https://10.0.0.1:443"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: [", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("just words", "is malformed: Expected `object`, got `str`"),
        ("clusters: 3", "is malformed: Expected `array | null`"),
        ("", "has no current-context"),
        (document("nowhere"), "has no context 'nowhere'"),
        (document("main", **{"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (document("main", **{"client-key-data": "%%%"}), "not base64"),
        (
            document() | {"contexts": [{"name": "main", "context": {"cluster": "d", "user": "u"}}]},
            "has no cluster 'd'",
        ),
        (document() | {"users": []}, "has no user 'u'"),
        (document() | {"clusters": [{"name": "c", "cluster": {}}]}, "the cluster has no server"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, content: Any, says: str) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(UserError) as caught:
        load(path)
    assert path in caught.value.message
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_wrong_context_tells_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(write(tmp_path / "config", document()), "nowhere")
    assert caught.value.hint == "there is: bare, main"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot read kubeconfig {tmp_path}/none: No such file or directory"):
        load(str(tmp_path / "none"))


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no kubeconfig") as caught:
        load(env={"HOME": str(tmp_path)})
    assert "--kubeconfig" in caught.value.hint


def test_a_pod_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_operator.kube.config.SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(UserError) as caught:
        load(env={"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert caught.value.hint == "run the pod with automountServiceAccountToken: true"


def test_another_user_is_asked_for(tmp_path: Path) -> None:
    user: dict[str, Any] = {
        "token": "admin",
        "as": "system:serviceaccount:slurm:limited",
        "as-uid": "u-1",
        "as-groups": ["one", "two"],
        "as-user-extra": {"example.com/Scopes": ["a", "b"]},
    }
    config = load(write(tmp_path / "config", document(**user)))
    assert config.impersonate == (
        ("Impersonate-User", "system:serviceaccount:slurm:limited"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-Group", "one"),
        ("Impersonate-Group", "two"),
        ("Impersonate-Extra-example.com%2Fscopes", "a"),
        ("Impersonate-Extra-example.com%2Fscopes", "b"),
    )


def test_groups_without_a_user_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="as-groups or as-user-extra without a user") as caught:
        load(write(tmp_path / "config", document("main", **{"as-groups": ["one"]})))
    assert "as:" in caught.value.hint


def proxied(**cluster: str) -> dict[str, Any]:
    content = document()
    content["clusters"][0]["cluster"] |= cluster
    return content


def test_a_proxy_of_the_cluster_wins_over_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "config", proxied(**{"proxy-url": "http://proxy:3128"}))
    assert load(path, env={"HTTPS_PROXY": "http://other:1"}).proxy == "http://proxy:3128"
    with pytest.raises(UserError, match="a proxy at 'socks5://proxy:1080' is not supported"):
        load(write(tmp_path / "socks", proxied(**{"proxy-url": "socks5://bob:s3cret@proxy:1080"})))


@pytest.mark.parametrize(
    ("server", "env", "proxy"),
    [
        ("https://c:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://c:6443", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://c:6443", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http://c", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https://c:6443", {}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://10.96.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.com, 10.0.0.0/8"}, ""),
        ("https://10.96.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "192.168.0.0/16,x/y"}, "http://p:1"),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, ""),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "[fd00::1]:443"}, ""),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "fd00::1"}, ""),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "no_proxy": "example.com"}, ""),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, ""),
        ("https://example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "http://p:1"),
        ("https://badexample.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com"}, "http://p:1"),
        ("https://c:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "c:443"}, "http://p:1"),
        ("https://c:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "c:6443"}, ""),
        ("https://c:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
    ],
)
def test_the_proxy_of_the_environment(tmp_path: Path, server: str, env: dict[str, str], proxy: str) -> None:
    assert load(write(tmp_path / "config", proxied(server=server)), env=env).proxy == proxy


def test_a_pod_uses_the_proxy_of_its_environment_too(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HTTPS_PROXY": "http://p:1"}
    assert in_cluster(env, tmp_path).proxy == "http://p:1"
    assert in_cluster(env | {"NO_PROXY": "10.96.0.0/12"}, tmp_path).proxy == ""
