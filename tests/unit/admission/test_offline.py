"""`slurm-operator validate`: findings with their line, for whatever people have in their files."""

import io
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.admission.offline import Report, check
from slurm_operator.admission.positions import Document, Position, documents
from slurm_operator.admission.validate import validate
from slurm_operator.cli import main
from tests.unit.admission.cases import CASES
from tests.unit.admission.examples import BY_NAME, Case

NODESET = """\
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata:
  name: gpu
spec:
  controllerRef: {name: slurm}
  slurmd: {image: a, resources: {limits: {cpu: 1}}}
  logfile: {image: a}
"""
ROOT = Path(__file__).parents[3]


def lines(text: str) -> list[str]:
    return [str(finding) for finding in check({"f.yaml": text}).findings]


def one(text: str) -> Document:
    (found,) = documents(text)
    return found


def test_a_good_object_has_no_findings() -> None:
    report = check({"f.yaml": NODESET})
    assert (report.findings, len(report.checked), report.ignored) == ([], 1, [])


def test_a_finding_says_where_what_and_how_to_cure_it() -> None:
    assert lines(NODESET + "  replicas: -1\n") == [
        "f.yaml:9:3: error: NodeSet gpu: spec.replicas: must not be negative; write 0 or more"
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.old is None], ids=str)
def test_the_same_verdict_as_on_line(case: Case) -> None:
    """A file may be told more: where a part does not fit the schema, on line the rest is not judged at all."""
    found = [finding.path for finding in check({"f": yaml.safe_dump(case.new)}).findings if finding.severity == "error"]
    refused = [problem.path for problem in validate(BY_NAME[case.kind], case.new)]
    assert set(refused) <= set(found)
    assert bool(refused) == bool(found)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("  extraConf: x\n", "f.yaml:9:3"),
        ("  template:\n    spec:\n      containers:\n      - {name: other, image: 7}\n", "f.yaml:12:23"),
        ("  partition: {config: 'a\n\n    b'}\n", "f.yaml:9:15"),
        ("  updateStrategy:\n    scheduledUpdate: {duration: 10s}\n", "f.yaml:10:23"),
    ],
)
def test_places(more: str, place: str) -> None:
    found = [line for line in lines(NODESET + more) if ": error: " in line]
    assert [line.partition(": error")[0] for line in found] == [place], found


MANY = """\
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata:
  name: GPU
  labels: {a: 1}
spec:
  replicas: many
  minReadySeconds: -3
  slurmd: {image: 7, resources: {limits: {cpu: 1}}}
  slurmdd: {}
  logfile: [image]
  partition: {enabled: "yes", config: "a\\nb"}
  template:
    spec:
      containers:
      - {name: other, image: 7}
      - {name: other}
"""


def test_every_mistake_of_an_object_is_found_at_once() -> None:
    """A part of the wrong type does not hide what is wrong with the other parts."""
    assert [line.split(": ")[0] + " " + line.split(": ")[3] for line in lines(MANY)] == [
        "f.yaml:4:3 metadata.name",
        "f.yaml:5:12 metadata.labels.a",
        "f.yaml:6:1 spec.controllerRef",
        "f.yaml:7:3 spec.replicas",
        "f.yaml:8:3 spec.minReadySeconds",
        "f.yaml:9:12 spec.slurmd.image",
        "f.yaml:10:3 spec.slurmdd",
        "f.yaml:11:3 spec.logfile",
        "f.yaml:12:15 spec.partition.enabled",
        "f.yaml:12:31 spec.partition.config",
        "f.yaml:16:23 spec.template.spec.containers[0].image",
        "f.yaml:17:10 spec.template.spec.containers[1].name",
    ]


@given(st.data())
def test_a_wrong_type_hides_nothing_elsewhere(data: st.DataObject) -> None:
    """Whatever fields have the wrong type, each is named, and so is a rule that another field breaks."""
    fields = ["replicas", "scalingMode", "extraConf", "slurmd", "logfile", "template", "updateStrategy", "pinToNode"]
    wrong = data.draw(st.sets(st.sampled_from(fields)))
    manifest = yaml.safe_load(NODESET)
    manifest["spec"] |= {"minReadySeconds": -1, **dict.fromkeys(wrong, 1.5)}
    found = {finding.path for finding in check({"f": yaml.safe_dump(manifest)}).findings}
    assert found == {"spec.minReadySeconds", *(f"spec.{name}" for name in wrong)}


def test_what_is_missing_is_shown_where_it_belongs() -> None:
    (line,) = lines(NODESET.replace("  controllerRef: {name: slurm}\n", ""))
    assert line.startswith("f.yaml:5:1: error: NodeSet gpu: spec.controllerRef: controllerRef is missing; ")


def test_warnings_and_spelling() -> None:
    assert lines(NODESET + "  slurmdd: {}\n") == [
        "f.yaml:9:3: warning: NodeSet gpu: spec.slurmdd: unknown field, ignored; did you mean slurmd?"
    ]


def test_several_documents_and_lists() -> None:
    bad = NODESET + "  replicas: -1\n"
    item = "".join(f"  {line}\n" for line in bad.splitlines()).replace("  apiVersion", "- apiVersion", 1)
    text = f"# a comment\n---\n---\n{bad}---\napiVersion: v1\nkind: List\nitems:\n{item}"
    assert [line.partition(": error")[0] for line in lines(text)] == ["f.yaml:12:3", "f.yaml:25:5"]


def test_other_kinds_are_ignored_and_counted() -> None:
    report = check({"f": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"})
    assert (report.findings, report.checked, [found.subject for found in report.ignored]) == ([], [], ["Deployment a"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: NodeSet", "kind: Nodeset", "kind: slinky.slurm.net has no such kind; did you mean NodeSet?"),
        ("v1beta1", "v1alpha1", "apiVersion: is not served; write slinky.slurm.net/v1beta1"),
        ("  name: gpu\n", "  labels: {}\n", "metadata.name: name is missing; name the object"),
        ("kind: NodeSet", "king: NodeSet", "no object: apiVersion and kind are missing"),
        (NODESET, "just a text", "no object: is not a mapping"),
        ("metadata:", "spec: {}\nmetadata:", "f.yaml:6:1: error: spec is there twice"),
        ("metadata:", "metadata: [", "not YAML: "),
        ("kind: NodeSet", "kind: !!python/object:os.system NodeSet", "not YAML: could not determine a constructor"),
        ("name: gpu", "name: \x07gpu", "f.yaml:4:9: error: not YAML: character 0x0007 is not allowed"),
        ("name: gpu", "name: &a [*a]", "contains itself"),
    ],
)
def test_mistakes_of_the_file_itself(old: str, new: str, says: str) -> None:
    found = lines(NODESET.replace(old, new, 1))
    assert any(says in line for line in found), found


def test_what_comes_before_broken_yaml_is_still_checked() -> None:
    found = lines(f"{NODESET}  replicas: -1\n---\na: [\n")
    assert ["spec.replicas" in found[0], "not YAML" in found[1]] == [True, True]


def test_a_short_text_that_never_ends() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    assert "more than 200000 values" in lines(bomb)[0]


def test_endless_depth() -> None:
    assert "nested too deeply" in lines("[" * 5000)[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2030-01-31T22:00:00Z", "2030-01-31T22:00:00Z"),
        ("2030-01-31", "2030-01-31"),
        ("12:30:45", "12:30:45"),
        ("1e3", 1000.0),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 15),
        ("1_000", 1000),
        (".5", 0.5),
        ("=", "="),
        ("yes", True),
        ("~", None),
        ("'1'", "1"),
        ("-", None),
    ],
)
def test_scalars_as_kubernetes_reads_them(text: str, value: object) -> None:
    found = one(f"a: {text}" if text != "-" else "a:").value["a"]
    assert (found, type(found)) == (value, type(value))


def test_keys_become_texts_and_merges_are_made() -> None:
    found = one("base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\n1: a\ntrue: b\nnull: c\n").value
    assert found["more"] == {"x": 1, "y": 3}
    assert [found["1"], found["true"], found["null"]] == ["a", "b", "c"]


def test_the_nearest_place() -> None:
    document = one("a:\n  b:\n  - c: 1\n")
    assert document.position("a.b[0].c") == Position(3, 5)
    assert document.position("a.b[0].d.e[3]") == Position(3, 5)
    assert document.position("z") == Position(1, 1)


def test_config_maps_in_the_same_files_are_known() -> None:
    controller = """\
apiVersion: slinky.slurm.net/v1beta1
kind: Controller
metadata: {name: slurm}
spec:
  slurmKeyRef: {name: a, key: b}
  jwtKeyRef: {name: a, key: b}
  configFileRefs: [{name: files}, {name: elsewhere}]
"""
    files = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: files}\ndata: {slurm.conf: ''}\n"
    found = [str(finding) for finding in check({"a": controller, "b": files}).findings if finding.severity == "error"]
    assert len(found) == 1
    assert "a:7:21: error: Controller slurm: spec.configFileRefs[0].name: ConfigMap files holds slurm.conf" in found[0]


def test_the_example_passes() -> None:
    report: Report = check({str(file): file.read_text() for file in (ROOT / "examples").rglob("*.yaml")})
    assert report.checked
    assert [str(finding) for finding in report.findings if finding.severity == "error"] == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gpu.yaml"


@pytest.mark.parametrize(
    ("more", "options", "code"),
    [
        ("", [], 0),
        ("  replicas: -1\n", [], 1),
        ("  slurmdd: {}\n", [], 0),
        ("  slurmdd: {}\n", ["--strict"], 1),
    ],
)
def test_exit_codes(file: Path, more: str, options: list[str], code: int) -> None:
    file.write_text(NODESET + more)
    assert main(["validate", *options, str(file)]) == code
    assert main(["validate", *options, str(file.parent)]) == code


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path / "gone.yaml")]) == 2
    assert "gone.yaml: No such file" in capsys.readouterr().err
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert main(["validate", str(tmp_path / "binary.yaml")]) == 2
    assert "is not UTF-8" in capsys.readouterr().err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(NODESET + "  replicas: -1\n"))
    assert main(["validate", "-"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("<stdin>:9:3: error: NodeSet gpu: spec.replicas: ")
    assert err == "1 object checked: 1 error, no warnings\n"


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(NODESET + "  replicas: -1\n")
    assert main(["validate", "-o", "json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "checked": 1,
        "ignored": 0,
        "findings": [
            {
                "file": str(file),
                "line": 9,
                "column": 3,
                "severity": "error",
                "subject": "NodeSet gpu",
                "path": "spec.replicas",
                "message": "must not be negative",
                "hint": "write 0 or more",
            }
        ],
    }


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def test_what_is_ignored_is_named_on_request(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{NODESET}---\n{POD}")
    assert main(["validate", "-v", str(file)]) == 0
    assert capsys.readouterr().err == f"{file}:10:1: ignored: Pod a\n1 object checked: no errors, no warnings\n"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n---\n", "apiVersion: v1\nkind: List\nitems: []\n"])
def test_a_file_without_any_object_is_an_error(file: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a template or a wrong path left empty must not pass as checked, beside others neither."""
    good = file.with_name("good.yaml")
    good.write_text(NODESET)
    file.write_text(text)
    assert main(["validate", str(good), str(file)]) == 1
    assert capsys.readouterr().out == (
        f"{file}:1:1: error: holds no object; check the path, or what should have written the file\n"
    )


def test_a_file_without_slurm_objects_is_worth_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(POD)
    assert main(["validate", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"{file}:1:1: warning: holds no object of slinky.slurm.net, so nothing in it was checked; "
        f"name the files that hold Slurm objects\n"
    )
    assert main(["validate", "--strict", str(file)]) == 1


def test_a_folder_counts_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 1
    assert f"{tmp_path}:1:1: error: holds no object; put YAML or JSON files into it" in capsys.readouterr().out
    for name, text in {"nodeset.yaml": NODESET, "pod.yaml": POD, "values.yaml": ""}.items():
        (tmp_path / name).write_text(text)
    assert main(["validate", "--strict", str(tmp_path)]) == 0


def test_a_broken_file_is_not_called_empty_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("a: [\n")
    assert main(["validate", str(file)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1
