"""What slurmd is told about its node, as it arrives after an image's shell has read the arguments."""

import os
import shutil
import subprocess

import pytest

from slurm_operator.slurm.conf.worker import node_conf_arguments, parse_node_conf

SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]


def as_the_image_does(arguments: list[str], shell: str, topology: str) -> list[str]:
    """`$*` joins the arguments, then a shell reads the whole: what slurmd would get."""
    command = "printf '%s\\n' " + " ".join(arguments)
    environment = {"PATH": os.environ["PATH"], "SLINKY_TOPOLOGY": topology}
    return subprocess.run(
        [shell, "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=10
    ).stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_topology_there_is_no_topology_token(shell: str) -> None:
    """scenario 40"""
    arguments = node_conf_arguments("slinky", "RealMemory=2000")
    assert as_the_image_does(arguments, shell, "") == ["--conf", "Features=slinky RealMemory=2000"]


@pytest.mark.parametrize("shell", SHELLS)
def test_with_a_topology_the_last_conf_is_complete(shell: str) -> None:
    words = as_the_image_does(node_conf_arguments("slinky", "Gres=gpu:8"), shell, "topo-switch:s2,topo-block:b2")
    assert words[-2:] == ["--conf", "Features=slinky Gres=gpu:8 Topology=topo-switch:s2,topo-block:b2"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_users_own_topology_wins(shell: str) -> None:
    words = as_the_image_does(node_conf_arguments("a", "topology=mine:s1"), shell, "other:s2")
    assert words == ["--conf", "Features=a topology=mine:s1"]


@pytest.mark.parametrize("shell", SHELLS)
def test_quotes_and_dollars_of_the_user_reach_slurmd_unchanged(shell: str) -> None:
    words = as_the_image_does(node_conf_arguments("a", "Extra={'x':$HOME}"), shell, "")
    assert words == ["--conf", "Extra={'x':$HOME} Features=a"]


def test_features_join_the_baseline() -> None:
    """scenario 158"""
    assert node_conf_arguments("base", "feature=a Features=b,c,a")[1] == "'Features=a,b,base,c'"


def test_keys_keep_their_spelling_and_repeated_ones_join() -> None:
    assert node_conf_arguments("x", "RealMemory=1 Gres=gpu:1 gres=tmp:2")[1] == (
        "'Features=x Gres=gpu:1,tmp:2 RealMemory=1'"
    )


@pytest.mark.parametrize("text", ["RealMemory", "=5", "A=1 B"])
def test_malformed_extra_conf_is_refused_and_the_builder_falls_back_to_the_baseline(text: str) -> None:
    """scenario 158"""
    with pytest.raises(ValueError, match="Key=Value"):
        parse_node_conf(text)
    assert node_conf_arguments("base", text)[1] == "'Features=base'"


def test_a_key_without_a_value_is_left_out() -> None:
    assert node_conf_arguments("base", "Topology= RealMemory=1")[1] == "'Features=base RealMemory=1'"
