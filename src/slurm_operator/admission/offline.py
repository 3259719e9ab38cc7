"""Checks whole files of manifests without a cluster: the rules of the webhook, with the line of each finding."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal

from slurm_operator.admission.defaults import Manifest
from slurm_operator.admission.positions import Document, Position, documents
from slurm_operator.admission.problem import Facts, Problem
from slurm_operator.admission.validate_parts import judge_parts
from slurm_operator.admission.validate_schema import join
from slurm_operator.api import KINDS, Kind, Object
from slurm_operator.api.names import API_VERSION, GROUP

_KINDS: Final[Mapping[str, Kind[Object]]] = {kind.name: kind for kind in KINDS}
_START: Final = Position(1, 1)


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    position: Position
    severity: Literal["error", "warning"]
    message: str
    subject: str = ""
    """Kind and name of the object."""
    path: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.position.line}:{self.position.column}"
        said = ": ".join(filter(None, (self.subject, self.path, self.message)))
        return f"{place}: {self.severity}: {said}" + (f"; {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Located:
    """An object within a file."""

    file: str
    document: Document
    root: str
    """Its path within the document, "" unless it is an item of a list."""
    value: Manifest

    @property
    def kind(self) -> str:
        return str(self.value.get("kind", ""))

    @property
    def group(self) -> str:
        return str(self.value.get("apiVersion", "")).partition("/")[0]

    @property
    def metadata(self) -> dict[str, Any]:
        metadata = self.value.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def subject(self) -> str:
        name = self.metadata.get("name") or self.metadata.get("generateName")
        return f"{self.kind} {name}" if name else self.kind

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace") or "")

    def finding(self, problem: Problem, severity: Literal["error", "warning"] = "error") -> Finding:
        place = self.document.position(_under(self.root, problem.path))
        return Finding(self.file, place, severity, problem.message, self.subject, problem.path, problem.hint)


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)
    checked: list[Located] = field(default_factory=list)
    ignored: list[Located] = field(default_factory=list)


def check(texts: Mapping[str, str]) -> Report:
    """All files together, as an object in one may refer to an object in another."""
    report = Report()
    objects = [found for file, text in texts.items() for found in _objects(file, text, report)]
    facts = _facts(objects)
    for found in objects:
        if found.group != GROUP:
            report.ignored.append(found)
            continue
        report.checked.append(found)
        report.findings += _judged(found, facts[found.namespace])
    order = {file: number for number, file in enumerate(texts)}
    report.findings.sort(key=lambda finding: (order[finding.file], finding.position))
    return report


def unchecked(arguments: Mapping[str, Collection[str]], report: Report) -> Iterator[Finding]:
    """Yield the arguments of a command line, with the files behind each, that led to no object of ours."""
    spoken_of = {finding.file for finding in report.findings}
    ours, others = ({found.file for found in objects} for objects in (report.checked, report.ignored))
    for argument, files in arguments.items():
        known = ours | spoken_of
        if not known.isdisjoint(files):
            continue
        if not others.isdisjoint(files):
            message = f"holds no object of {GROUP}, so nothing in it was checked"
            yield Finding(argument, _START, "warning", message, hint="name the files that hold Slurm objects")
        elif set(files) == {argument}:
            hint = "check the path, or what should have written the file"
            yield Finding(argument, _START, "error", "holds no object", hint=hint)
        else:
            yield Finding(argument, _START, "error", "holds no object", hint="put YAML or JSON files into it")


def _objects(file: str, text: str, report: Report) -> Iterator[Located]:
    for document in documents(text):
        report.findings += [Finding(file, found.position, "error", found.message) for found in document.mistakes]
        for root, value in _unpacked("", document.value):
            if isinstance(value, dict) and value.get("apiVersion") and value.get("kind"):
                yield Located(file, document, root, value)
            elif value is not None:
                missing = "apiVersion and kind are missing" if isinstance(value, dict) else "is not a mapping"
                hint = "write one Kubernetes object for each document"
                report.findings.append(
                    Finding(file, document.position(root), "error", f"no object: {missing}", hint=hint)
                )


def _unpacked(root: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The items of a list, which may hold lists again."""
    is_list = isinstance(value, dict) and str(value.get("kind", "")).endswith("List")
    items = value.get("items") if is_list else None
    if not isinstance(items, list):
        yield root, value
        return
    for index, item in enumerate(items):
        yield from _unpacked(f"{join(root, 'items')}[{index}]", item)


def _judged(found: Located, facts: Facts) -> Iterable[Finding]:
    kind = _KINDS.get(found.kind)
    if found.value["apiVersion"] != API_VERSION:
        return [found.finding(Problem("apiVersion", "is not served", f"write {API_VERSION}"))]
    if kind is None:
        near = get_close_matches(found.kind, _KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(_KINDS)}"
        return [found.finding(Problem("kind", f"{GROUP} has no such kind", hint))]
    problems, unwise = judge_parts(kind, found.value, facts)
    if not found.metadata.get("name") and not found.metadata.get("generateName"):
        problems.append(Problem("metadata.name", "name is missing", "name the object"))
    return [
        *map(found.finding, problems),
        *(found.finding(Problem(warning.path, warning.message), "warning") for warning in unwise),
    ]


def _facts(objects: Iterable[Located]) -> Mapping[str, Facts]:
    """What the same files say about ConfigMaps and claims, by namespace; others may exist, and are not judged."""
    maps: dict[str, dict[str, frozenset[str] | None]] = defaultdict(dict)
    claims: dict[str, dict[str, frozenset[str] | None]] = defaultdict(dict)
    for found in objects:
        name, value = str(found.metadata.get("name", "")), found.value
        if (found.group, found.kind) == ("v1", "ConfigMap"):
            maps[found.namespace][name] = frozenset(_keys(value.get("data"))) | frozenset(
                _keys(value.get("binaryData"))
            )
        elif (found.group, found.kind) == ("v1", "PersistentVolumeClaim"):
            spec = value.get("spec")
            modes = spec.get("accessModes") if isinstance(spec, dict) else None
            claims[found.namespace][name] = frozenset(map(str, modes if isinstance(modes, list) else ()))
    known = {found.namespace for found in objects}
    return {namespace: Facts(maps[namespace], claims[namespace]) for namespace in known}


def _keys(part: Any) -> Iterable[str]:
    return part if isinstance(part, dict) else ()


def _under(root: str, path: str) -> str:
    return f"{root}.{path}" if root and path else root or path
