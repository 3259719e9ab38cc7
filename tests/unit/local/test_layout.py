"""Names and addresses of a stage: valid, apart from each other, and the same every time."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_local.layout import MOST_NODES, Names, Network, candidate_networks
from slurm_operator.errors import UserError

stage_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
networks = st.integers(64, 127).map(Network)
indexes = st.integers(1, MOST_NODES)


@given(stage_names, indexes)
def test_interface_names_fit_the_kernel(name: str, index: int) -> None:
    names = Names(name)

    assert len(names.bridge) <= 15
    assert len(names.link(index)) <= 15
    assert names.link(index).startswith(names.tag)


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "-a", "a-", "a" * 33, "a b"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a stage"):
        Names(name)


@given(networks, indexes, indexes)
def test_machines_pods_and_services_have_addresses_of_their_own(network: Network, one: int, other: int) -> None:
    pods = ipaddress.IPv4Network(network.pods(one))
    services = ipaddress.IPv4Network(network.service_range)
    machines = ipaddress.IPv4Network(f"{network.gateway}/24", strict=False)

    assert ipaddress.IPv4Address(network.machine(one)) in machines
    assert not pods.overlaps(machines)
    assert not pods.overlaps(services)
    assert pods.subnet_of(network.whole)
    assert (network.pods(one) == network.pods(other)) == (one == other)
    assert (network.machine(one) == network.machine(other)) == (one == other)
    assert network.machine(one) not in {network.gateway, network.control_plane}


@given(stage_names)
def test_every_network_is_tried_once_in_an_order_that_a_name_fixes(name: str) -> None:
    candidates = candidate_networks(name)

    assert candidates == candidate_networks(name)
    assert len(set(candidates)) == len(candidates) == 64
