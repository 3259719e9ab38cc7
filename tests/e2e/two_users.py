"""Two people on one worker: the script that brings them together, and what must come of it whatever confines jobs."""

from pathlib import Path

SCRIPT = Path(__file__).parent / "files/two-users.sh"
USERS = "".join(
    f"{name}:x:{number}:{number}::/home/{name}:/bin/bash\n" for name, number in (("ada", 2001), ("bob", 2002))
)
GROUPS = "ada:x:2001:\nbob:x:2002:\n"


def sections(text: str) -> dict[str, list[str]]:
    """The lines below each heading `## NAME`."""
    _, *parts = text.split("## ")
    return {name: lines for name, *lines in (part.strip().splitlines() for part in parts)}


def assert_both_ran_on(worker: str, said: dict[str, list[str]]) -> None:
    assert said["together"] == [f"ada {worker}", f"bob {worker}"]


def assert_processors_are_confined(said: dict[str, list[str]]) -> None:
    """One each, not the same, and no way out of it."""
    seen = {name: _processors(said[name]) for name in ("ada/long", "bob/curious")}
    assert all(len(allowed) == 2 and len(set(allowed)) == 1 for allowed in seen.values()), seen
    assert {allowed[0] for allowed in seen.values()} == {"0", "1"}


def _processors(lines: list[str]) -> list[str]:
    """Those of the job's own process, then those of one that asked for all of them."""
    return [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list")]


def assert_only_who_took_too_much_was_killed(said: dict[str, list[str]]) -> None:
    assert said["states"] == [
        "ada RUNNING",
        "hog OUT_OF_MEMORY",
        "modest COMPLETED",
        "ada at last COMPLETED",
    ]
    assert said["bob/modest"] == [str(50 << 20)]


def assert_files_are_private(said: dict[str, list[str]]) -> None:
    tried = [line for line in said["bob/curious"] if line.startswith("could")]
    *others, own = tried
    assert len(others) == 6, tried
    assert [line for line in others if line.startswith("could: ")] == []
    assert own.startswith("could: cat /proc/")
