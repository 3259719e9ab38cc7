"""The build files agree with one another, and the entry script keeps the contract that pods rely on."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from slurm_local import images, recipes
from slurm_operator.errors import UserError

NAMES = recipes.names()


def test_every_image_of_the_project_has_its_build_files() -> None:
    assert NAMES == ["login", "mariadb", "openldap", "operator", "slurm"]


@pytest.mark.parametrize("name", NAMES)
def test_containerfile_and_recipe_install_the_same_packages(name: str) -> None:
    recipe = recipes.load(name)
    last_install = (recipe.folder / "Containerfile").read_text().split("apt-get install")[-1].split("&&")[0]
    words = {word for word in last_install.replace("\\", " ").split() if not word.startswith("-")}

    assert words - {"adduser", "systemd-standalone-sysusers"} == set(recipe.packages)


@pytest.mark.parametrize("name", NAMES)
def test_containerfile_and_recipe_start_the_same_programs(name: str) -> None:
    recipe = recipes.load(name)
    text = (recipe.folder / "Containerfile").read_text()
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL))
    for reference, started in recipe.references.items():
        found = re.findall(r"^ENTRYPOINT (.*)$", stages[reference], re.MULTILINE)
        assert found == [msgspec.json.encode(started.entrypoint).decode().replace('","', '", "')]
        assert re.findall(r"^USER (.*)$", stages[reference], re.MULTILINE) == ([started.user] if started.user else [])


@pytest.mark.parametrize("name", NAMES)
def test_daemons_are_started_by_absolute_path(name: str) -> None:
    recipe = recipes.load(name)
    for started in recipe.references.values():
        assert all(
            word.startswith(("/", "-")) or word in {"slurmctld", "slurmd", "sackd", "login"}
            for word in started.entrypoint
        )
    for script in recipe.files.rglob("*-entry"):
        bare = re.findall(
            r"(?:exec|start) (?:\S*\[@\]\S* )*(slurm\w+|sackd|sshd|sssd|mariadbd|slapd)\b", script.read_text()
        )
        assert bare == []


def test_slurm_has_the_number_that_pods_run_as() -> None:
    assert recipes.load("slurm").users == {"slurm": 401}
    assert any("slurm:x:401:401" in line for stage, line in recipes.load("login").root.hooks if stage == "essential")


def test_an_archive_is_named_after_everything_that_goes_into_it(tmp_path: Path) -> None:
    recipe = recipes.load("mariadb")
    before = images.archive_path(recipe)
    changed = msgspec.structs.replace(recipe, packages=(*recipe.packages, "less"))

    assert images.archive_path(recipe) == before
    assert images.archive_path(changed) != before
    assert images.references(recipe) == ["localhost/slurm-operator/mariadb:11.8"]


def test_an_unknown_image_is_named_with_those_that_exist() -> None:
    with pytest.raises(UserError, match="no image 'slrum'") as caught:
        recipes.load("slrum")
    assert "mariadb" in caught.value.hint


class TestWorkerOptions:
    """What slurmd is started with, given a pod's arguments and environment."""

    SCRIPT = recipes.load("slurm").files / "usr/local/bin/slurm-entry"

    def options(self, *arguments: str, **environment: str) -> list[str]:
        functions, _, _ = self.SCRIPT.read_text().partition("\ndaemon=")
        program = functions + '\nevaluate "${SLURMD_OPTIONS:-} $*"; node_conf; printf "%s\\0" "${words[@]}"'
        done = subprocess.run(
            ["bash", "-c", program, "slurm-entry", *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split("\0")[:-1]

    def test_quotes_and_variables_in_arguments_mean_what_they_say(self) -> None:
        conf = """'Features=a,b Topology='"$SLINKY_TOPOLOGY"''"""
        assert self.options("-Z", "--conf-server", "host:6817", "--conf", conf, SLINKY_TOPOLOGY="t:b[1-2]") == [
            *("-Z", "--conf-server", "host:6817"),
            *("--conf", "Features=a,b Topology=t:b[1-2]"),
        ]

    @pytest.mark.parametrize("topology", [{}, {"SLINKY_TOPOLOGY": ""}])
    def test_without_a_topology_there_is_no_token_for_it(self, topology: dict[str, str]) -> None:
        """scenario 40"""
        conf = """'Features=a Topology='"$SLINKY_TOPOLOGY"' Weight=2'"""
        assert self.options("-Z", "--conf", conf, **topology) == ["-Z", "--conf", "Features=a Weight=2"]

    def test_the_limits_of_the_pod_become_the_size_of_the_node(self) -> None:
        found = self.options("-Z", "--conf", "'Features=a'", POD_CPUS="3", POD_MEMORY="2048")
        assert found == ["-Z", "--conf", "Features=a CPUs=3 RealMemory=2048"]

    @pytest.mark.parametrize("given", ["CPUs=8", "cpus=8", "CoreSpecCount=1", "Sockets=1 CoresPerSocket=2"])
    def test_what_the_user_says_about_cpus_wins(self, given: str) -> None:
        found = self.options("-Z", "--conf", f"'{given}'", POD_CPUS="3", POD_MEMORY="2048")
        assert found == ["-Z", "--conf", f"{given} RealMemory=2048"]

    @pytest.mark.parametrize("given", ["RealMemory=100", "Realmemory=100", "MemSpecLimit=10"])
    def test_what_the_user_says_about_memory_wins(self, given: str) -> None:
        assert self.options("-Z", f"--conf='{given}'", POD_CPUS="3", POD_MEMORY="9") == [
            "-Z",
            "--conf",
            f"{given} CPUs=3",
        ]

    def test_no_limits_change_nothing(self) -> None:
        assert self.options("-Z", POD_CPUS="0", POD_MEMORY="0") == ["-Z"]
        assert self.options("-N", "static", POD_CPUS="4") == ["-N", "static"]

    @pytest.mark.parametrize(
        ("unlimited", "cpu_max", "memory_max", "size"),
        [
            ("cpu memory", "max 100000", "max", ""),
            ("cpu memory", "150000 100000", "max", "CPUs=3"),
            ("cpu memory", "max 100000", "2147483648", "RealMemory=2048"),
            ("cpu memory", None, None, ""),
            ("cpu", "max 100000", "max", "RealMemory=2048"),
            ("", "max 100000", "max", "CPUs=3 RealMemory=2048"),
        ],
    )
    def test_without_limits_the_whole_machine_counts_and_not_what_kubernetes_leaves_of_it(
        self, unlimited: str, cpu_max: str | None, memory_max: str | None, size: str, tmp_path: Path
    ) -> None:
        """Where the NodeSet sets no limit, POD_CPUS is that of a LimitRange or what the node has to offer."""
        for name, text in (("cpu.max", cpu_max), ("memory.max", memory_max)):
            if text is not None:
                (tmp_path / name).write_text(f"{text}\n")
        limits = {"POD_CPUS": "3", "POD_MEMORY": "2048", "POD_UNLIMITED": unlimited, "CGROUP": str(tmp_path)}
        assert self.options("-Z", **limits) == ["-Z", *(["--conf", size] if size else [])]

    @pytest.mark.parametrize(
        ("quota", "memory", "size"),
        [
            ("-1", "9223372036854771712", ""),
            ("150000", "9223372036854771712", "CPUs=3"),
            ("-1", "2147483648", "RealMemory=2048"),
        ],
    )
    def test_limits_of_control_groups_of_version_1(self, quota: str, memory: str, size: str, tmp_path: Path) -> None:
        for name, text in (("cpu/cpu.cfs_quota_us", quota), ("memory/memory.limit_in_bytes", memory)):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(f"{text}\n")
        limits = {"POD_CPUS": "3", "POD_MEMORY": "2048", "POD_UNLIMITED": "cpu memory", "CGROUP": str(tmp_path)}
        assert self.options("-Z", **limits) == ["-Z", *(["--conf", size] if size else [])]

    def test_options_come_from_the_environment_and_from_the_arguments(self) -> None:
        assert self.options("-v", SLURMD_OPTIONS="-Z --conf 'Weight=1'") == ["-Z", "-v", "--conf", "Weight=1"]


@pytest.mark.parametrize(
    "script", sorted(recipes.project().glob("images/*/files/usr/local/bin/*-entry")), ids=lambda path: path.name
)
def test_entry_scripts_are_executable_and_parse(script: Path) -> None:
    shell = shlex.split(script.read_text().splitlines()[0].removeprefix("#!"))
    subprocess.run([*shell, "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)
