"""Programs run in a sandbox, here without the namespaces around them."""

import uvloop

from slurm_local.sandbox import Sandbox


class Outside(Sandbox):
    def _entering(self, command: tuple[str, ...], env: dict[str, str]) -> list[str]:
        return [*command]


def test_a_program_that_ends_at_once_has_not_failed() -> None:
    """uvloop would notice the closed end of an input pipe before the input is written in about every fourth run."""

    async def main() -> list[str]:
        return [await Outside("box", {}).run("echo", "done") for _ in range(60)]

    assert uvloop.run(main()) == ["done\n"] * 60
