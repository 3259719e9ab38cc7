"""The small shell programs that run in generated pods, one file each."""

from functools import cache
from importlib.resources import files


@cache
def script(name: str) -> str:
    """Text of a script, as it is handed to `sh -c`."""
    return files(__name__).joinpath(f"{name}.sh").read_text(encoding="utf-8")
