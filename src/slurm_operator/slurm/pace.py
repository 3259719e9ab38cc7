"""How often to ask: at ease while nothing changes, and never so often that slurmrestd is busy with us.

slurmctld sends every node as soon as one has changed, so on a busy cluster the pause must follow the price.
"""

from collections.abc import Callable

import msgspec

from slurm_operator.slurm.rest import Cost


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The knobs; together the two shares keep slurmrestd below a fifth of one core on average."""

    quiet: float = 1.0
    """Pause after an answer that said "nothing changed"."""
    list_share: float = 0.13
    """Part of one core that slurmrestd may spend on whole lists for us."""
    list_credit: float = 6.0
    """Seconds of it that may be saved up; half is kept for reads that somebody waits for."""
    single_share: float = 0.05
    """Part of one core that it may spend on single nodes."""
    single_credit: float = 0.1
    longest: float = 30.0
    """However dear a list is, the view is renewed this often."""
    seconds_per_byte: float = 0.15e-6
    """A list cannot have cost slurmrestd more than this, half again the measured price: the rest was waiting."""
    check: float = 60.0
    """Seconds between two checks of "nothing changed": slurmctld's clock may have gone back."""
    cheap_list: float = 0.05
    """Seconds of slurmrestd's time that a whole list may cost to be read with every such check.

    It also shows that an administrator deleted all records, which slurmctld does not count as a change.
    """
    retry_first: float = 1.0
    retry_longest: float = 5.0
    settle: float = 30.0
    """How long a slurmctld that came back without its nodes is not believed."""

    def for_lists(self, monotonic: Callable[[], float]) -> "Budget":
        return Budget(monotonic, share=self.list_share, credit=self.list_credit, longest=self.longest)

    def for_singles(self, monotonic: Callable[[], float]) -> "Budget":
        return Budget(monotonic, share=self.single_share, credit=self.single_credit, longest=self.longest)

    def price(self, cost: Cost) -> float:
        """Seconds of slurmrestd's time that a list cost."""
        return min(cost.seconds, cost.size * self.seconds_per_byte)

    def period(self, price: float) -> float:
        """Seconds between lists of this price on a cluster where something always changes."""
        return max(self.quiet, price / self.list_share)

    def after_failure(self, failures: int) -> float:
        return min(self.retry_longest, self.retry_first * 2.0 ** min(failures - 1, 8))


class Budget:
    """Time of slurmrestd that we may still use: it grows by our share of a core, up to what may be saved up."""

    def __init__(self, monotonic: Callable[[], float], *, share: float, credit: float, longest: float) -> None:
        self._monotonic = monotonic
        self._share = share
        self._credit = credit
        self._longest = longest
        self._balance = credit
        self._since = monotonic()

    def spend(self, seconds: float) -> None:
        self._balance = self._now() - seconds
        self._since = self._monotonic()

    def wait(self, *, reserve: float = 0.0) -> float:
        """Seconds until more than `reserve` of the credit (0 to 1) is there again."""
        lacking = reserve * self._credit - self._now()
        return min(max(0.0, lacking / self._share), self._longest)

    def _now(self) -> float:
        return min(self._credit, self._balance + (self._monotonic() - self._since) * self._share)
