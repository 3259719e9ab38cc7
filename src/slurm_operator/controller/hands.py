"""What the actions of a Controller work with."""

from typing import Protocol

from slurm_operator.controller.delivery import HearsDeliveries
from slurm_operator.controller.partitions import AsksPartitions


class ControllerHands(AsksPartitions, HearsDeliveries, Protocol):
    """Kubernetes, the partitions that slurmctld has closed, and what the sidecars of slurmctld say."""
