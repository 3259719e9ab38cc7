"""Two people on one worker, confined by control groups of version 2, on an emulated machine that has them.

slurmctld and slurmd are started there with the files and the arguments that the operator writes for their pods.
"""

import os
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_local.debian import make_root
from slurm_local.emulator import ADDRESS, emulate
from slurm_local.recipes import Recipe, load
from slurm_operator.api import Controller, NodeSet
from slurm_operator.desired.config import ControllerFacts, configuration
from slurm_operator.desired.worker import WorkerFacts, worker_template
from slurm_operator.slurm.conf.writer import cgroup_conf
from slurm_operator.slurm.keys import jwt_key, slurm_key
from tests.e2e.small import part
from tests.e2e.two_users import (
    GROUPS,
    SCRIPT,
    USERS,
    assert_both_ran_on,
    assert_files_are_private,
    assert_only_who_took_too_much_was_killed,
    assert_processors_are_confined,
    sections,
)

pytestmark = pytest.mark.timeout(300)

GUEST = Path(__file__).parent / "files/cgroup-v2.sh"
# What the user says: the operator leaves it to them whether jobs are confined.
CONF = """\
TaskPlugin=task/cgroup,task/affinity
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED
SelectTypeParameters=CR_Core_Memory
"""
CONFINE = """\
ConstrainCores=yes
ConstrainRAMSpace=yes
"""
HOSTS = f"127.0.0.1 localhost\n{ADDRESS} emulated slurm-controller-0 slurm-controller.slurm work-0\n"


def controller() -> Controller:
    manifest = part("Controller", accountingRef=None, configFileRefs=[{"name": "confine"}], extraConf=CONF)
    return msgspec.convert(_placed(manifest), Controller)


def nodeset() -> NodeSet:
    manifest = part("NodeSet", "work", replicas=1)
    manifest["spec"]["slurmd"]["resources"] = {"limits": {"cpu": "2", "memory": "512Mi"}}
    return msgspec.convert(_placed(manifest), NodeSet)


def _placed(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "slurm", "uid": "1"}}


def slurm_files() -> dict[str, str]:
    """All of slurmctld's /etc/slurm but the keys, as the operator writes it."""
    facts = ControllerFacts(nodesets=(nodeset(),), config_maps={"confine": {"cgroup.conf": cgroup_conf() + CONFINE}})
    return configuration(controller(), facts)


def worker_container() -> dict[str, Any]:
    template = worker_template(nodeset(), WorkerFacts(controller=controller()))
    return dict(template["spec"]["containers"][0])


def started(recipe: Recipe, reference: str, arguments: list[str], env: list[dict[str, Any]]) -> str:
    """What the container runs: the image's own entry with the pod's variables and arguments."""
    variables = [f"{each['name']}={each.get('value', '')}" for each in env]
    words = ["env", *variables, *recipe.references[reference].entrypoint, *arguments]
    return f"#!/bin/bash\nexec {shlex.join(words)}\n"


def lay_out(folder: Path, recipe: Recipe) -> None:
    """What goes over the root of the Slurm image: the image's folders, users, and two containers with their files."""
    for name, text in recipe.folders.items():
        mode, owner = text.split()
        path = folder / name
        path.mkdir(parents=True)
        path.chmod(int(mode, 8))
        os.chown(path, recipe.users.get(owner, 0), recipe.users.get(owner, 0))
    root = make_root(recipe.root)
    keys = {"slurm.key": slurm_key(), "jwt.key": jwt_key()}
    worker = worker_container()
    limits = worker["resources"]["limits"]
    write(folder / "etc/hosts", HOSTS)
    write(folder / "etc/passwd", (root / "etc/passwd").read_text() + USERS)
    write(folder / "etc/group", (root / "etc/group").read_text() + GROUPS)
    write(folder / "two-users", SCRIPT.read_text(), 0o755)
    write(folder / "pods/slurm-controller-0", started(recipe, "slurmctld", [], []), 0o755)
    write(folder / "pods/work-0", started(recipe, "slurmd", worker["args"], worker["env"]), 0o755)
    write(folder / "pods/slurm-controller-0.limits", "0 0\n")
    write(folder / "pods/work-0.limits", f"{limits['cpu']} {limits['memory'].removesuffix('Mi')}\n")
    for name, text in slurm_files().items():
        write(folder / "pods/slurm-controller-0.etc" / name, text)
    for name, key in keys.items():
        write(folder / "pods/slurm-controller-0.etc" / name, key, 0o600, owner=recipe.users["slurm"])
    write(folder / "pods/work-0.etc/slurm.key", keys["slurm.key"], 0o600)


def write(path: Path, content: str | bytes, mode: int = 0o644, owner: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    os.chown(path, owner, owner)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the machine said, by section."""
    recipe = load("slurm")
    folder = tmp_path_factory.mktemp("emulated")
    lay_out(folder, recipe)
    text = emulate([make_root(recipe.root), recipe.files, folder], GUEST.read_text(), timeout=240)
    print(text)
    return sections(text)


def test_version_2_is_what_the_operator_writes_where_nobody_says_otherwise() -> None:
    manifest = part("Controller", accountingRef=None, configFileRefs=None)
    files = configuration(msgspec.convert(_placed(manifest), Controller), ControllerFacts())

    assert "CgroupPlugin=cgroup/v2" in files["cgroup.conf"].splitlines()


def test_the_worker_registers_with_the_size_of_its_pod(emulated: dict[str, list[str]]) -> None:
    assert {"cpu", "cpuset", "memory"} <= set(emulated["controllers"][0].split())
    assert emulated["before"][0] == "work-0 idle 2 512"


def test_two_users_share_a_worker_at_the_same_time(emulated: dict[str, list[str]]) -> None:
    assert_both_ran_on("work-0", emulated)


def test_a_job_over_its_memory_ends_out_of_memory_and_its_neighbour_goes_on(emulated: dict[str, list[str]]) -> None:
    assert_only_who_took_too_much_was_killed(emulated)


def test_each_job_has_its_own_processor_and_cannot_take_the_other(emulated: dict[str, list[str]]) -> None:
    assert_processors_are_confined(emulated)


def test_what_belongs_to_one_cannot_be_read_by_the_other(emulated: dict[str, list[str]]) -> None:
    assert_files_are_private(emulated)
