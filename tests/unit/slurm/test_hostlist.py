"""Hostlists: what Slurm writes is read, what we write Slurm reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.hostlist import HostlistError, compress, expand, natural_sorted

names = st.text(alphabet="abz019-_.", min_size=1, max_size=8)
numbered = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}",
    st.sampled_from(["w-", "gpu", "a1b-", "r0c"]),
    st.integers(0, 120),
    st.integers(1, 4),
)


@pytest.mark.parametrize(
    ("hostlist", "expected"),
    [
        ("", []),
        ("(null)", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("w-[0-2]", ["w-0", "w-1", "w-2"]),
        ("w-[8-11]", ["w-8", "w-9", "w-10", "w-11"]),
        ("w-[008-010,20]", ["w-008", "w-009", "w-010", "w-20"]),
        ("w[1-2]-ib", ["w1-ib", "w2-ib"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("a[1,3],b-[2-3],c", ["a1", "a3", "b-2", "b-3", "c"]),
        (" a , b[1] ", ["a", "b1"]),
    ],
)
def test_expands(hostlist: str, expected: list[str]) -> None:
    assert expand(hostlist) == expected


@pytest.mark.parametrize(
    "hostlist",
    ["a[", "a]", "a[[1]]", "a[]", "a[1-]", "a[x]", "a[3-1]", "a,,b", ",", "a[0-9999999]", "a[1-2]b[0-99999]"],
)
def test_refuses_what_is_no_hostlist(hostlist: str) -> None:
    with pytest.raises(HostlistError):
        expand(hostlist)


@pytest.mark.parametrize(
    ("given_names", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["w-2", "w-0", "w-1", "w-1"], "w-[0-2]"),
        (["w-9", "w-10", "w-12"], "w-[9-10,12]"),
        (["w-09", "w-10", "w-9"], "w-[9,09-10]"),
        (["login", "w1", "b"], "b,login,w1"),
    ],
)
def test_compresses(given_names: list[str], expected: str) -> None:
    assert compress(given_names) == expected


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "a\n"])
def test_refuses_to_write_what_is_no_name(name: str) -> None:
    with pytest.raises(HostlistError):
        compress([name])


@given(st.lists(names | numbered))
def test_round_trip(given_names: list[str]) -> None:
    assert sorted(expand(compress(given_names))) == sorted(set(given_names))


@given(st.lists(numbered, min_size=1))
def test_compressing_again_changes_nothing(given_names: list[str]) -> None:
    assert compress(expand(compress(given_names))) == compress(given_names)


def test_ten_thousand_workers_fit_on_a_line() -> None:
    assert compress(f"gpu-{number}" for number in range(10_000)) == "gpu-[0-9999]"


def test_sorts_as_people_count() -> None:
    assert natural_sorted(["w-10", "w-9", "w-09", "v-1"]) == ["v-1", "w-9", "w-09", "w-10"]
