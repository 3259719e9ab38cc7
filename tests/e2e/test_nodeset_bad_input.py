"""What users get wrong about workers, on the real stage: told where and how to mend it; once mended, it heals."""

from collections.abc import Iterator
from typing import Any

import pytest

from slurm_operator.errors import UserError
from tests.e2e.slurm import Slurm
from tests.e2e.small import wait_degraded

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def odd(slurm: Slurm) -> Iterator[str]:
    """The name of a NodeSet that is gone after the test."""
    yield "odd"
    slurm.kubectl("delete", "nodeset", "odd", "--ignore-not-found", timeout=120)


def heals(slurm: Slurm, manifest: dict[str, Any]) -> None:
    slurm.apply(manifest)
    slurm.wait_ready("nodeset/odd", timeout=120)
    assert slurm.condition("nodeset", "odd", "Degraded")["status"] == "False"
    slurm.wait_state("odd-0", "IDLE")


def test_a_worker_that_fits_no_node(slurm: Slurm, odd: str) -> None:
    nowhere = {"nodeSelector": {"colour": "plaid"}}
    slurm.apply(slurm.nodeset(odd, 1, template=nowhere))
    wait_degraded(slurm, "nodeset", odd, "Unschedulable", f"pod {slurm.namespace}/odd-0", "nodeSelector")
    heals(slurm, slurm.nodeset(odd, 1))


def test_an_image_that_does_not_exist(slurm: Slurm, odd: str) -> None:
    wrong = slurm.nodeset(odd, 1)
    wrong["spec"]["slurmd"]["image"] = "localhost/no/such:image"
    slurm.apply(wrong)
    wait_degraded(slurm, "nodeset", odd, "ErrImagePull", "odd-0", "localhost/no/such:image", "check the image's name")
    heals(slurm, slurm.nodeset(odd, 1))


@pytest.mark.parametrize(
    ("conf", "reason"),
    [("Weight=heavy", "CrashLoopBackOff"), ("Topology=nowhere:x", "SlurmRejectsNode")],
    ids=["what slurmd refuses", "what slurmctld refuses"],
)
def test_a_node_that_slurm_rejects(slurm: Slurm, odd: str, conf: str, reason: str) -> None:
    # The new partition has slurmctld reconfigure, and that forgets whom it rejected: first the one, then the other.
    slurm.apply(slurm.nodeset(odd, 1))
    slurm.wait_ready("nodeset/odd")
    slurm.apply(slurm.nodeset(odd, 1, extraConf=conf))
    wait_degraded(slurm, "nodeset", odd, reason, "odd-0", conf.split("=")[1], "check extraConf", timeout=90)
    heals(slurm, slurm.nodeset(odd, 1))


def test_a_name_too_long_for_a_host(slurm: Slurm) -> None:
    name = "w" * 62
    with pytest.raises(UserError, match=rf"metadata.name: the host name {name}-0 has more than 63 .*shorter prefix"):
        slurm.apply(slurm.nodeset(name, 1))
    short = slurm.nodeset(name, 1, template={"hostname": "odd-"})
    slurm.apply(short)
    try:
        slurm.wait_ready(f"nodeset/{name}")
        assert slurm.login("srun", "-p", "odd", "hostname") == "odd-0"
    finally:
        slurm.kubectl("delete", "nodeset", name, timeout=120)
