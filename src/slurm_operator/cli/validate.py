"""`slurm-operator validate`: what admission would say about manifests, without a cluster, for CI and pre-commit."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec

from slurm_operator.admission.offline import Report, check, unchecked
from slurm_operator.cli.types import Subparsers
from slurm_operator.errors import UserError

STDIN = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")
CANNOT_READ = 2


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "validate",
        help="check manifests without a cluster",
        description="Check manifests as admission would. Exit code: 0 all well, 1 not, 2 a file is unreadable.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON, a folder of such files, or - for stdin")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print what was found")
    parser.add_argument("--strict", action="store_true", help="fail on warnings too")
    parser.add_argument("-v", "--verbose", action="store_true", help="name the objects that are not checked")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        named = (STDIN if name == "-" else name for name in options.files)
        arguments = {name: dict(_texts(name)) for name in dict.fromkeys(named)}
    except UserError as error:
        print(f"slurm-operator: {error}", file=sys.stderr)
        return CANNOT_READ
    report = check({file: text for texts in arguments.values() for file, text in texts.items()})
    report.findings += unchecked(arguments, report)
    if options.output == "json":
        print(_json(report))
    else:
        _print(report, verbose=options.verbose)
    return int(any(options.strict or finding.severity == "error" for finding in report.findings))


def _texts(argument: str) -> Iterator[tuple[str, str]]:
    if argument == STDIN:
        yield STDIN, sys.stdin.read()
        return
    given = Path(argument)
    inside = (file for file in sorted(given.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
    for file in inside if given.is_dir() else [given]:
        yield str(file), _read(file)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {file}: byte {error.start} is not UTF-8") from None


def _print(report: Report, *, verbose: bool) -> None:
    for finding in report.findings:
        print(finding)
    if verbose:
        for found in report.ignored:
            line = found.document.position(found.root)
            print(f"{found.file}:{line.line}:{line.column}: ignored: {found.subject}", file=sys.stderr)
    counts = {name: sum(finding.severity == name for finding in report.findings) for name in ("error", "warning")}
    said = ", ".join(_counted(number, name) for name, number in counts.items())
    print(f"{_counted(len(report.checked), 'object')} checked: {said}", file=sys.stderr)


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _json(report: Report) -> str:
    findings = [
        asdict(finding) | {"line": finding.position.line, "column": finding.position.column}
        for finding in report.findings
    ]
    for finding in findings:
        del finding["position"]
    content = {"checked": len(report.checked), "ignored": len(report.ignored), "findings": findings}
    return msgspec.json.format(msgspec.json.encode(content)).decode()
