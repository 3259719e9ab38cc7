"""The parser agrees with Slurm 26.05 (the first table holds `scontrol`'s own readings), and no text adds a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.conf.parser import Conf, Line, Pair, one_line, parse, quote, render

KEYS = st.from_regex(r"[A-Za-z0-9_.]{1,12}", fullmatch=True).filter(lambda key: key.lower() != "include")
VALUES = st.text(max_size=30)


def representable(value: str) -> bool:
    try:
        quote(value, "key")
    except ValueError:
        return False
    return True


PAIRS = st.builds(Pair, KEYS, VALUES.filter(representable), st.sampled_from(["", "+", "-"]))
LINES = st.builds(lambda pairs: Line(tuple(pairs)), st.lists(PAIRS, min_size=1, max_size=5))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\#b", "a#b"),
        ('"a b"', "a b"),
        (r"a\\b", r"a\b"),
        ('a"b', 'a"b'),
        ('"a', '"a'),
        ('"a"b', '"a"b'),
        (r"\"a b\"", "a b"),
        ("ab\\\\", "ab\\"),
        ('"a # b"', '"a'),
        (r'"a \# b"', "a # b"),
        ('""', ""),
        ("a\\\nb", "ab"),
        ("a\\   \nb", "ab"),
        ('"a\tb"', "a\tb"),
        ("é'x", "é'x"),
        ("a,b=c", "a,b=c"),
        ("x # c \\", "x"),
        (" spaced", "spaced"),
    ],
)
def test_values_are_read_as_slurm_reads_them(written: str, read: str) -> None:
    assert parse(f"State={written}\nNext=1\n").get("State") == read


@given(st.lists(LINES, max_size=8))
def test_what_is_written_is_read_back(lines: list[Line]) -> None:
    assert parse(render(lines)) == Conf(tuple(lines))


@given(KEYS, VALUES)
def test_no_value_can_add_a_line(key: str, value: str) -> None:
    try:
        text = render([Line((Pair(key, value),)), Line((Pair("Next", "1"),))])
    except ValueError:
        return
    assert text.count("\n") == 2
    assert [line.value for line in parse(text).lines] == [value, "1"]


@given(st.text(max_size=60))
def test_no_one_line_text_can_reach_its_neighbours(text: str) -> None:
    try:
        kept = one_line(text, "partition")
    except ValueError:
        return
    lines = parse(f"PartitionName=x {kept}\nNext=1\n").lines
    assert len(lines) == 2
    assert lines[0].value == "x"
    assert lines[1] == Line((Pair("Next", "1"),))


@given(st.text(max_size=200))
def test_any_text_can_be_parsed(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", 'a "b', '"a"', '""'])
def test_what_slurm_cannot_represent_is_refused_with_the_name_of_the_field(value: str) -> None:
    with pytest.raises(ValueError, match="StoragePass"):
        quote(value, "StoragePass")


def test_lines_carry_their_place_and_continuations_count_from_their_first_line() -> None:
    conf = parse("# head\nA=1\nB=x,\\\n  y\n\nC=2\n")
    assert [(line.key, line.number) for line in conf.lines] == [("a", 2), ("b", 3), ("c", 6)]


def test_keys_are_compared_without_case_and_the_last_one_wins() -> None:
    conf = parse("ReturnToService=1\nreturntoservice=2\n")
    assert conf.get("RETURNTOSERVICE") == "2"
    assert len(conf.all("ReturnToService")) == 2


def test_a_record_keeps_its_options() -> None:
    line = parse('PartitionName = all Nodes=ALL Default=YES AllowGroups="a b"').lines[0]
    assert line.value == "all"
    assert line.get("nodes") == "ALL"
    assert line.get("AllowGroups") == "a b"


def test_includes_are_followed_and_name_their_own_lines() -> None:
    files = {"nodesets.conf": "NodeSet=a Feature=a\ninclude deeper.conf\n", "deeper.conf": "PartitionName=p Nodes=a\n"}
    conf = parse("A=1\nInclude nodesets.conf\n", "slurm.conf", files.get)
    assert [(line.file, line.number, line.key) for line in conf.lines] == [
        ("slurm.conf", 1, "a"),
        ("nodesets.conf", 1, "nodeset"),
        ("deeper.conf", 1, "partitionname"),
    ]


def test_an_include_of_itself_ends() -> None:
    assert parse("include me.conf", "me.conf", {"me.conf": "include me.conf"}.get).lines[-1].include == "me.conf"


def test_an_include_counts_only_at_the_start_of_a_line() -> None:
    assert parse(" include other.conf").lines[0].rest == "include other.conf"
