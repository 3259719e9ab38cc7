"""Measuring in a process of its own, so that no figure carries the garbage of another."""

import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def resident_mb() -> float:
    """Resident memory once the allocator has given back what it can."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def in_fresh_process(function: Callable[..., float], *arguments: object) -> float:
    """Calls a function of a module by name in a new interpreter, and returns the number it prints."""
    code = f"import sys; from {function.__module__} import {function.__name__} as f; print(f(*sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return float(done.stdout.strip().splitlines()[-1])
