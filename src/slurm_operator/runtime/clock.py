"""The clock that controllers are handed; it is defined one layer below, where leases and retries need it too."""

from slurm_operator.kube.clock import Clock, SystemClock

__all__ = ["Clock", "SystemClock"]
