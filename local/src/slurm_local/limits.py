"""The one machine-wide setting that nodes need raised: with the first stage, and put back with the last."""

from pathlib import Path

from slurm_local.layout import STATE_HOME

_SETTING = Path("/proc/sys/fs/inotify/max_user_instances")
# Each node takes dozens of inotify instances; with the usual limit of 128 the kubelets of a fourth stage never start.
_ENOUGH = 8192


def raise_limits(setting: Path = _SETTING, home: Path = STATE_HOME) -> None:
    """Keeps the value of before in a file, first, so that it can be put back whatever happens."""
    current = int(setting.read_text())
    if current >= _ENOUGH:
        return
    before = _before(home)
    if not before.exists():
        before.parent.mkdir(parents=True, exist_ok=True)
        before.write_text(str(current))
    setting.write_text(str(_ENOUGH))


def restore_limits(setting: Path = _SETTING, home: Path = STATE_HOME) -> None:
    """Puts the value of before back if no stage is left."""
    before = _before(home)
    if before.exists() and not (home.exists() and any(home.iterdir())):
        setting.write_text(before.read_text())
        before.unlink()


def _before(home: Path) -> Path:
    return home.parent / "inotify-instances-before"
