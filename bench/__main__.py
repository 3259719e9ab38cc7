"""`python -m bench [section ...]`: runs all sections or those named, prints one table, fails if a promise is broken."""

import argparse
import importlib
import pkgutil
import sys

import bench
from bench.table import Options, Row, render


def sections() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return sorted(name.removeprefix("bench_") for name in names if name.startswith("bench_"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=bench.__doc__)
    parser.add_argument("section", nargs="*", help=f"of: {', '.join(sections())}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to see that it runs, not to judge")
    arguments = parser.parse_args()
    unknown = set(arguments.section) - set(sections())
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are: {', '.join(sections())}")
    rows: list[Row] = []
    for name in arguments.section or sections():
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.bench_{name}").measure(Options(quick=arguments.quick))
    print(render(rows))
    return int(any(row.kept is False for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
