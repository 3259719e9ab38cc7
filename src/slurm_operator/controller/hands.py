"""What the actions of a Controller work with."""

from typing import Protocol

from slurm_operator.controller.delivery import HearsDeliveries
from slurm_operator.controller.partitions import AsksPartitions
from slurm_operator.runtime.uncreated import KnowsRefusals


class ControllerHands(AsksPartitions, HearsDeliveries, KnowsRefusals, Protocol):
    """Kubernetes, the partitions that slurmctld has closed, what the sidecars of slurmctld say, and refused pods."""
