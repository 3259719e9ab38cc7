"""How fast and how small the program is: `python -m bench`. Each figure stands beside a raw reference of the same run.

A section is a module `bench_*.py` with a function `measure(options) -> Iterable[Row]`; nothing else registers it.
"""
