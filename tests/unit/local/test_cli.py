"""`slurm-operator local kubectl`: the words after it are kubectl's own, options included."""

from pathlib import Path

import pytest

from slurm_local import cli
from slurm_operator.cli import main


class Stage:
    """The stage that was asked for, and the command line that its kubectl got."""

    kubeconfig = Path("kubeconfig")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kubectl = self

    def command(self, *words: str) -> list[str]:
        return ["kubectl", self.name, *words]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that would have replaced this process."""
    executed: list[list[str]] = []

    def replace(_: str, command: list[str]) -> None:
        executed.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "existing", Stage)
    monkeypatch.setattr("os.execv", replace)
    return executed


@pytest.mark.parametrize(
    ("words", "stage", "passed"),
    [
        ("get pods -A", "dev", "get pods -A"),
        ("-n slurm get pods", "dev", "-n slurm get pods"),
        ("--namespace=slurm get pods", "dev", "--namespace=slurm get pods"),
        ("--name mine -n slurm get pods", "mine", "-n slurm get pods"),
        ("--name=mine exec deploy/login -- sinfo -N", "mine", "exec deploy/login -- sinfo -N"),
        ("-n slurm get nodeset --name mine", "dev", "-n slurm get nodeset --name mine"),
        ("-- --name=mine", "dev", "--name=mine"),
        ("get --help", "dev", "get --help"),
        ("", "dev", ""),
    ],
)
def test_the_words_after_kubectl_are_kubectls(executed: list[list[str]], words: str, stage: str, passed: str) -> None:
    assert main(["local", "kubectl", *words.split()]) == 130
    assert executed == [["kubectl", stage, *passed.split()]]


def test_other_commands_still_refuse_what_they_do_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["local", "status", "-n", "slurm"])
    assert "unrecognized arguments: -n slurm" in capsys.readouterr().err
