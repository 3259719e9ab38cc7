"""Whoever gives the program a bad way to the cluster reads one clear line, and what to do; never a traceback."""

import datetime
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from slurm_local.apiserver import ApiServer, free_ports
from slurm_local.pki import Authority
from slurm_operator.cli import main

Json = dict[str, Any]
Spoil = Callable[[Json, Path, ApiServer], None]

SECONDS = 40


def complaint(stderr: str) -> str:
    """What the program says on its way out besides its log, which must be for people: a line, and what to do."""
    assert "Traceback" not in stderr
    lines = [line for line in stderr.splitlines() if not line.startswith("{")]
    assert lines[0].startswith("slurm-operator: ")
    assert len(lines) <= 2, stderr
    return "\n".join(lines)


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """`slurm-operator status` with a kubeconfig that does not do."""

    def run(kubeconfig: Path) -> str:
        assert main(["status", "--kubeconfig", str(kubeconfig)]) == 1
        return complaint(capsys.readouterr().err)

    return run


def cluster(config: Json) -> Json:
    found: Json = config["clusters"][0]["cluster"]
    return found


def user(config: Json) -> Json:
    found: Json = config["users"][0]["user"]
    return found


def write_expired(folder: Path, api_server: ApiServer) -> tuple[Path, Path]:
    """A client certificate of the cluster's own authority that ended yesterday."""
    authority = api_server.plane.authority.pair
    signer = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.cert.read_bytes()).subject
    key = ec.generate_private_key(ec.SECP256R1())
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "late")])
    certificate = (
        x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(yesterday - datetime.timedelta(days=1))
        .not_valid_after(yesterday)
        .sign(signer, hashes.SHA256())
    )
    files = folder / "late.crt", folder / "late.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    no_password = serialization.NoEncryption()
    form = serialization.PrivateFormat.TraditionalOpenSSL
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, no_password))
    return files


def wrong_authority(config: Json, folder: Path, api_server: ApiServer) -> None:
    cluster(config).pop("certificate-authority-data", None)
    cluster(config)["certificate-authority"] = str(Authority(folder / "strangers", "ca").pair.cert)


def no_such_authority_file(config: Json, folder: Path, api_server: ApiServer) -> None:
    cluster(config).pop("certificate-authority-data", None)
    cluster(config)["certificate-authority"] = str(folder / "absent.crt")


def nobody_listens(config: Json, folder: Path, api_server: ApiServer) -> None:
    (port,) = free_ports(1)
    cluster(config)["server"] = f"https://127.0.0.1:{port}"


def not_https(config: Json, folder: Path, api_server: ApiServer) -> None:
    cluster(config)["server"] = api_server.url.replace("https:", "http:")


def wrong_host_name(config: Json, folder: Path, api_server: ApiServer) -> None:
    cluster(config)["tls-server-name"] = "somewhere.example.com"


def expired_certificate(config: Json, folder: Path, api_server: ApiServer) -> None:
    certificate, key = write_expired(folder, api_server)
    config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(key)}


def strangers_certificate(config: Json, folder: Path, api_server: ApiServer) -> None:
    pair = Authority(folder / "strangers", "ca").issue("stranger", "stranger")
    config["users"][0]["user"] = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}


def key_of_another(config: Json, folder: Path, api_server: ApiServer) -> None:
    pair = Authority(folder / "strangers", "ca").issue("stranger", "stranger")
    config["users"][0]["user"] = {"client-certificate": str(api_server.cert), "client-key": str(pair.key)}


def worthless_token(config: Json, folder: Path, api_server: ApiServer) -> None:
    config["users"][0]["user"] = {"token": "worthless"}


def no_context(config: Json, folder: Path, api_server: ApiServer) -> None:
    config["current-context"] = "nirvana"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (wrong_authority, ["certificate", "not trusted", "strangers/ca.crt"]),
        (no_such_authority_file, ["absent.crt", "No such file"]),
        (nobody_listens, ["does not answer", "check that the API server runs", "kubeconfig"]),
        (not_https, ["cannot"]),
        (wrong_host_name, ["certificate", "not trusted", "tls-server-name"]),
        (expired_certificate, ["late.crt", "expired on", "renew"]),
        (strangers_certificate, ["certificate"]),
        (key_of_another, ["do not make a pair"]),
        (worthless_token, ["credentials", "renew the token"]),
        (no_context, ["nirvana", "there is:"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_bad_kubeconfig(
    spoil: Spoil, says: list[str], api_server: ApiServer, status: Callable[[Path], str], tmp_path: Path
) -> None:
    config: Json = yaml.safe_load(api_server.kubeconfig.read_text())
    spoil(config, tmp_path, api_server)
    file = tmp_path / "spoiled.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    text = status(file)
    for part in says:
        assert part in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{{{ not yaml", "not valid YAML"),
        ("clusters: 5", "malformed"),
        ("", "no current-context"),
    ],
)
def test_a_file_that_is_no_kubeconfig(
    content: str | None, says: str, status: Callable[[Path], str], tmp_path: Path
) -> None:
    file = tmp_path / "garbled"
    if content is not None:
        file.write_text(content)
    text = status(file)
    assert str(file) in text
    assert says in text


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_refused_permission(command: str, api_server: ApiServer) -> None:
    kubeconfig = api_server.kubeconfig_for("powerless", "powerless")
    addresses = ["--health-addr", "0", "--metrics-addr", "0"] if command == "run" else []
    program = [sys.executable, "-c", "from slurm_operator.cli import main; raise SystemExit(main())"]
    arguments = [command, "--kubeconfig", str(kubeconfig), *addresses]
    ended = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 1
    text = complaint(ended.stderr)
    assert "cannot" in text
    assert "forbidden" in text
    assert "powerless" in text
    assert "grant" in text
