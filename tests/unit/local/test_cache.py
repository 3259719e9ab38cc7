"""Things made once: whole or not at all, whoever asks and however often."""

import threading
from pathlib import Path

import pytest

from slurm_local.cache import fingerprint, made_once


def test_it_is_made_on_first_use_only(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(partial: Path) -> None:
        made.append(partial)
        partial.write_text("whole")

    for _ in range(2):
        assert made_once(tmp_path / "thing", make).read_text() == "whole"
    assert len(made) == 1


def test_a_failure_leaves_nothing_and_the_next_try_starts_afresh(tmp_path: Path) -> None:
    def fail(partial: Path) -> None:
        partial.mkdir()
        (partial / "half").write_text("half")
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        made_once(tmp_path / "thing", fail)

    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]
    made_once(tmp_path / "thing", lambda partial: partial.mkdir())
    assert list((tmp_path / "thing").iterdir()) == []


def test_what_a_killed_maker_left_is_not_taken_for_the_thing(tmp_path: Path) -> None:
    (tmp_path / "partial-thing").mkdir()
    (tmp_path / "partial-thing" / "half").touch()

    made_once(tmp_path / "thing", lambda partial: partial.mkdir())

    assert list((tmp_path / "thing").iterdir()) == []


def test_two_who_ask_at_once_get_one(tmp_path: Path) -> None:
    made: list[Path] = []
    may_finish = threading.Event()

    def make(partial: Path) -> None:
        made.append(partial)
        may_finish.wait(10)
        partial.touch()

    askers = [threading.Thread(target=made_once, args=(tmp_path / "thing", make)) for _ in range(3)]
    for asker in askers:
        asker.start()
    may_finish.set()
    for asker in askers:
        asker.join(10)

    assert len(made) == 1


def test_parts_do_not_run_into_each_other() -> None:
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("a", b"b") == fingerprint("a", "b")
