"""The machine's own limit is back as it was when the last stage is gone, and never lowered."""

from pathlib import Path

import pytest

from slurm_local.limits import raise_limits, restore_limits


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state" / "stages"


def test_raised_with_the_first_stage_and_put_back_with_the_last(tmp_path: Path, home: Path) -> None:
    setting = tmp_path / "limit"
    setting.write_text("128\n")
    for name in ("one", "two"):
        (home / name).mkdir(parents=True)
        raise_limits(setting, home)
    assert setting.read_text() == "8192"

    (home / "one").rmdir()
    restore_limits(setting, home)
    assert setting.read_text() == "8192"

    (home / "two").rmdir()
    restore_limits(setting, home)
    assert setting.read_text() == "128"
    assert list(home.parent.iterdir()) == [home]


def test_a_higher_limit_is_left_alone(tmp_path: Path, home: Path) -> None:
    setting = tmp_path / "limit"
    setting.write_text("65536\n")

    raise_limits(setting, home)
    restore_limits(setting, home)

    assert setting.read_text() == "65536\n"
    assert not home.parent.exists()
