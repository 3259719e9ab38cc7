"""What is made once per machine (programs, roots, images) is made before the first test, where no time limit runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_local.progress import Progress


def items_below(session: pytest.Session, folder: Path) -> list[pytest.Item]:
    return [item for item in session.items if folder in item.path.parents]


def make_before_tests(session: pytest.Session, *makers: Callable[[Progress], object]) -> None:
    """Runs the makers with their progress on the terminal; each is quick when its work is done."""
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for make in makers:
            make(Progress())
