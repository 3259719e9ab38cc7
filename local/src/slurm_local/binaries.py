"""Kubernetes, CoreDNS, helm and kwok, built from their pinned Go modules once for each version of the recipe in go/."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from slurm_local.cache import cache_home, fingerprint, made_once
from slurm_local.debian import Root, make_root
from slurm_local.progress import SILENT, Progress
from slurm_local.shell import run_logged
from slurm_operator.errors import UserError

GIVEN = "SLURM_OPERATOR_BINARIES"

_RECIPE = Path(__file__).parent / "go"
_KUBE_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "device-plugin",
)
PROGRAMS = (*_KUBE_PROGRAMS, "coredns", "helm", "kwok", "pause")
_PACKAGES = ("./kube", "./coredns", "./pause", "helm.sh/helm/v4/cmd/helm", "sigs.k8s.io/kwok/cmd/kwok")
KWOK_CONFIG = "kwok.yaml"
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/fast/pod-ready.yaml",
)
_RETRY = "Run the same command again: what was fetched and compiled is kept."

_GO = Root(name="go", packages=("golang-go", "ca-certificates"))


def pinned_version(module: str = "k8s.io/kubernetes") -> str:
    """The release of a module that go.mod pins, with its leading v."""
    pin = re.compile(rf"^\s*{re.escape(module)} (v\S+)(?: // indirect)?$", re.MULTILINE)
    found = pin.search((_RECIPE / "go.mod").read_text())
    if not found:
        raise LookupError(f"go.mod does not pin {module}")
    return found[1]


def binaries(progress: Progress = SILENT, given: Path | None = None) -> Path:
    """The folder that holds PROGRAMS: the one that was given, else one built here on first use."""
    folder = given or (Path(os.environ[GIVEN]) if os.environ.get(GIVEN) else None)
    if folder is None:
        return made_once(_built_folder(), lambda target: _build(target, progress))
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise UserError(
            f"{folder} lacks the programs {', '.join(missing)}",
            hint=f"Leave out --binaries and {GIVEN} to have them built.",
        )
    return folder.resolve()


def _built_folder() -> Path:
    sources = sorted(path for path in _RECIPE.rglob("*") if path.suffix in {".go", ".mod", ".sum"})
    content = [part for path in sources for part in (str(path.relative_to(_RECIPE)), path.read_bytes())]
    return cache_home() / "binaries" / f"{pinned_version()}-{fingerprint(_ldflags(), *content)}"


def _build(target: Path, progress: Progress) -> None:
    target.mkdir(parents=True)
    go = _Go(progress)
    with progress.step("fetching the sources of Kubernetes, CoreDNS, helm and kwok", usual=60):
        go.run(target, ["mod", "download"], what="fetching Go modules")
    with progress.step(f"building Kubernetes {pinned_version()}, CoreDNS, helm and kwok", usual=420):
        go.run(
            target,
            ["build", "-trimpath", "-ldflags", _ldflags(), "-o", f"{target}/", *_PACKAGES],
            what="building Kubernetes",
        )
    for name in _KUBE_PROGRAMS:
        (target / name).symlink_to("kube")
    kwok = Path(go.output(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]))
    stages = [kwok / "kustomize" / "stage" / stage for stage in _KWOK_STAGES]
    (target / KWOK_CONFIG).write_text("\n---\n".join(stage.read_text() for stage in stages))


def _ldflags() -> str:
    version = pinned_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    settings = {f"{package}.{name}": value for package in packages for name, value in facts.items()}
    settings["helm.sh/helm/v4/internal/version.version"] = pinned_version("helm.sh/helm/v4")
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in settings.items())])


class _Go:
    """The Go tool: the machine's own where it is new enough, else Debian's, run inside a root folder."""

    def __init__(self, progress: Progress) -> None:
        own = shutil.which("go") or ("/usr/local/go/bin/go" if Path("/usr/local/go/bin/go").exists() else None)
        self._own = own if own and _is_new_enough(own) else None
        self._root = None if self._own else make_root(_GO, progress, usual=60)

    def run(self, target: Path, arguments: list[str], *, what: str) -> None:
        log = cache_home() / "logs" / f"go-{arguments[0]}.log"
        run_logged(self._command(arguments), what=what, log=log, hint=_RETRY, env=self._environment(), cwd=_RECIPE)

    def output(self, arguments: list[str]) -> str:
        done = subprocess.run(
            self._command(arguments), env=self._environment(), cwd=_RECIPE, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def _command(self, arguments: list[str]) -> list[str]:
        if self._root is None:
            return [str(self._own), *arguments]
        return [*_inside(self._root, [_RECIPE, cache_home()]), "go", *arguments]

    def _environment(self) -> Mapping[str, str]:
        own = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
        if self._root is not None:
            # Inside the root only the cache folder is the machine's own.
            own |= {
                "GOPATH": str(cache_home() / "go"),
                "GOCACHE": str(cache_home() / "go" / "build"),
                "PATH": "/usr/sbin:/usr/bin",
            }
        return {**os.environ, **own}


def _inside(root: Path, folders: list[Path]) -> list[str]:
    """The words that run a program in a root with some of the machine's folders, in mounts that end with it."""
    lines = ["set -e", "root=$1; shift", "mount --make-rprivate /", "touch $root/etc/resolv.conf"]
    lines += [f"mount --rbind /{name} $root/{name}" for name in ("proc", "dev", "etc/resolv.conf")]
    for folder in folders:
        lines += [f"mkdir -p $root{folder}", f"mount --bind {folder} $root{folder}"]
    lines.append(f'exec chroot $root sh -c \'cd {folders[0]}; exec "$@"\' sh "$@"')
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines), "sh", str(root)]


def _is_new_enough(go: str) -> bool:
    wanted = re.search(r"^go (\d+)\.(\d+)", (_RECIPE / "go.mod").read_text(), re.MULTILINE)
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env={**os.environ, "GOTOOLCHAIN": "local"}
    )
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return bool(wanted and found and (int(found[1]), int(found[2])) >= (int(wanted[1]), int(wanted[2])))
