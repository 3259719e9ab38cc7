"""What a person sees while something long is going on: one line per step, with its usual and its real duration."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_WIDTH = 80


def spoken(seconds: float) -> str:
    """A duration as a person would say it: `0.4 s`, `12 s`, `6 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Progress:
    """Prints steps to a stream; on a terminal the running step's line counts the seconds and grows a bar."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False, verbose: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._live = not quiet and not verbose and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.verbose = verbose

    def say(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text + "\n")
            self._stream.flush()

    def detail(self, text: str) -> None:
        """What only `--verbose` shows."""
        if self.verbose:
            self.say("  " + text)

    @contextmanager
    def step(self, what: str, usual: float) -> Iterator[None]:
        """Names one piece of work and what it usually takes, then says how long it really took."""
        started = time.monotonic()
        done = threading.Event()
        painter = threading.Thread(target=self._paint, args=(what, usual, started, done), daemon=True)
        if self._live:
            painter.start()
        elif usual >= 10:
            self.say(f"{what} (usually {spoken(usual)}) ...")
        try:
            yield
        except BaseException as error:
            # Inside an event loop an interrupt arrives as a cancellation.
            stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
            how = "interrupted" if stopped else "failed"
            self._finish(painter, done, f"{what}: {how} after {spoken(time.monotonic() - started)}")
            raise
        self._finish(painter, done, f"{what}: {spoken(time.monotonic() - started)}")

    def _finish(self, painter: threading.Thread, done: threading.Event, text: str) -> None:
        done.set()
        if self._live:
            painter.join()
            self._stream.write("\r\x1b[K")
        self.say(text)

    def _paint(self, what: str, usual: float, started: float, done: threading.Event) -> None:
        while not done.wait(0.2):
            self._stream.write("\r\x1b[K" + running_line(what, usual, time.monotonic() - started))
            self._stream.flush()


def running_line(what: str, usual: float, elapsed: float) -> str:
    """The line of a step under way, never wider than a terminal: text, bar, seconds of the usual ones."""
    times = f" {spoken(elapsed)} of about {spoken(usual)}"
    room = 12
    filled = round(room * elapsed / usual) if elapsed < usual else room
    bar = f" [{'#' * filled}{'.' * (room - filled)}]"
    return what[: _WIDTH - len(bar) - len(times)] + bar + times


SILENT = Progress(quiet=True)
