"""Run one history again, and tell it: `python -m tests.simulation.worlds KIND SEED [SEED_AFTER_THE_LAST]`."""

import sys
import time
from collections import Counter

from tests.simulation.worlds.lives import LIVES, live


def main(kind: str, first: str, end: str = "") -> None:
    seeds = range(int(first), int(end) if end else int(first) + 1)
    found: Counter[str] = Counter()
    example: dict[str, int] = {}
    began = time.monotonic()
    for seed in seeds:
        try:
            history = live(LIVES[kind], seed)
            if len(seeds) == 1:
                print(history.tell())
        except Exception as error:
            if len(seeds) == 1:
                raise
            text = f"{type(error).__name__}: {error}"[:110]
            found[text] += 1
            example.setdefault(text, seed)
    for text, count in found.most_common():
        print(f"{count:5}  seed {example[text]:<8} {text}")
    print(f"{len(seeds)} histories in {time.monotonic() - began:.1f} s, {found.total()} broken")


main(*sys.argv[1:])
