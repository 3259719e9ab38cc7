"""Security contexts of the daemons of the control plane."""

import pytest

from slurm_operator.desired.config import ControllerFacts
from slurm_operator.desired.controller import stateful_set
from tests.unit.desired import examples


@pytest.mark.parametrize(
    ("asked", "confined"),
    [
        ("", True),
        ("slurmctld: {image: i, securityContext: {runAsUser: 0}}", False),
        ("slurmctld: {image: i, securityContext: {privileged: true}}", False),
        ("slurmctld: {image: i, securityContext: {capabilities: {add: [NET_ADMIN]}}}", False),
        ("template: {spec: {securityContext: {runAsUser: 0}}}", False),
        ("template: {spec: {containers: [{name: slurmctld, securityContext: {privileged: true}}]}}", False),
    ],
)
def test_a_daemon_has_no_capabilities_unless_the_user_asks_for_rights(asked: str, confined: bool) -> None:
    found = stateful_set(examples.controller(asked + "\n"), ControllerFacts())["spec"]["template"]["spec"]
    context = found["containers"][0]["securityContext"]
    assert (context.get("allowPrivilegeEscalation") is False) == confined
    assert (context.get("capabilities") == {"drop": ["ALL"]}) == confined
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
