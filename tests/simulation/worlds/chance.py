"""What goes wrong between the operator and the two systems it talks to, drawn from one seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


class Crashed(BaseException):
    """The operator's process ends here; no `except Exception` of the operator may stop that."""


@dataclass
class Chance:
    rng: random.Random
    faults: float = 0.0
    """Probability that a call fails, before or after it had its effect."""
    dies_after: int | None = None
    """Calls until the process ends."""
    dead: bool = False
    meanwhile: Callable[[], None] = field(default=lambda: None)
    """What others do between the operator's look at the world and its first write."""

    def call(self, effect: Callable[[], object], error: Exception, lost: Callable[[], None] = lambda: None) -> None:
        """Have an effect, or not, and let the operator know, or not; `lost` is called if only the answer is lost."""
        if self.dead:
            raise Crashed
        fate = self.rng.random()
        if fate < self.faults:
            raise error
        dies = self.dies_after is not None and self.dies_after <= 0
        if dies and self.rng.random() < 0.5:
            self._die()
        effect()
        if dies:
            lost()
            self._die()
        if self.dies_after is not None:
            self.dies_after -= 1
        if fate > 1 - self.faults:
            lost()
            raise error

    def read(self, error: Exception) -> None:
        if self.dead:
            raise Crashed
        if self.rng.random() < self.faults:
            raise error

    def _die(self) -> None:
        self.dead = True
        raise Crashed
