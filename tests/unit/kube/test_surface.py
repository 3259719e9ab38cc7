"""What the package offers, all of it and nothing else."""

import inspect

from slurm_operator import kube


def test_everything_listed_exists_and_everything_offered_is_listed() -> None:
    offered = {name for name, value in vars(kube).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert set(kube.__all__) == offered
