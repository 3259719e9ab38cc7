"""What the lint says before a configuration is applied; each error was seen to stop slurmctld 26.05."""

import pytest

from slurm_operator.slurm.conf.lint import Facts, Level, errors, lint, lint_slurmdbd

HEAD = "ClusterName=c\nSlurmctldHost=h\nNodeSet=a Feature=a\n"


def messages(extra: str, level: Level = Level.ERROR, **files: str) -> list[str]:
    named = {name.replace("__", "."): text for name, text in files.items()}
    return [str(finding) for finding in lint({"slurm.conf": HEAD + extra, **named}) if finding.level == level]


def test_a_good_configuration_has_no_findings() -> None:
    conf = HEAD + "PartitionName=p Nodes=a Default=YES MaxTime=UNLIMITED\nMaxNodeCount=1024\nSlurmdTimeout=INFINITE\n"
    assert lint({"slurm.conf": conf, "cgroup.conf": "CgroupPlugin=disabled\n"}) == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("ReturnToServce=2", "slurm.conf:4: unknown key ReturnToServce (did you mean ReturnToService?)"),
        ("Qwertyuiop=2", "slurm.conf:4: unknown key Qwertyuiop (Slurm 26.05 does not know it)"),
        ("nonsense", "slurm.conf:4: cannot read 'nonsense'"),
        ("SlurmdTimeout=30 KillWait=3", "cannot read what follows SlurmdTimeout: 'KillWait'"),
        ("SlurmdTimeout=abc", "SlurmdTimeout=abc is not a number from 0 to 65535"),
        ("SlurmdTimeout=70000", "SlurmdTimeout=70000 is not a number from 0 to 65535"),
        ("MaxJobCount=-1", "MaxJobCount=-1 is not a number from 0 to 4294967295"),
        ("DisableRootJobs=maybe", "DisableRootJobs=maybe is neither YES nor NO"),
        ("ClusterName=other", "ClusterName=other contradicts line 1"),
        ("PartitionName=p Nodes=gone", "partition p: no node or NodeSet is called gone"),
        ("PartitionName=p Nodes=ALL,a", "ALL must stand alone"),
        ("PartitionName=p Nodes=a\nPartitionName=p Nodes=a", "slurm.conf:5: partition p is defined twice"),
        ("PartitionName=p Nodes=a MaxTim=3", "PartitionName=p: unknown option MaxTim (did you mean MaxTime?)"),
        ("PartitionName=p Nodes=a oops", "PartitionName=p: cannot read 'oops'"),
        ("PartitionName=p Nodes=a Topology=t", "partition p: topology t is not in topology.yaml"),
        ("include nodes.conf", "includes nodes.conf, which is not there"),
        ("JobSubmitPlugins=lua", "JobSubmitPlugins=lua needs job_submit.lua"),
        ("SlurmctldParameters=enable_stepmgr", "enable_stepmgr needs PrologFlags=Contain"),
        ("SelectType=select/linear", "dynamic workers need SelectType=select/cons_tres"),
        ("PreemptMode=REQUEUE", "PreemptMode needs a PreemptType"),
        ("Prolog=missing.sh", "Prolog=missing.sh: there is no such file"),
        ("EpilogSlurmctld=/etc/slurm/missing.sh", "there is no such file"),
    ],
)
def test_what_would_stop_slurmctld_is_an_error(extra: str, expected: str) -> None:
    found = messages(extra)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    "extra",
    [
        "SlurmctldParameters=enable_stepmgr\nPrologFlags=Contain",
        "PreemptMode=SUSPEND,GANG\nPreemptType=preempt/partition_prio",
        "Prolog=/usr/local/bin/prolog",
        "Prolog=p.d/*",
        "PartitionName=DEFAULT MaxTime=1\nPartitionName=p Nodes=a",
        "PartitionName=p",
        "NodeName=n[1-3] CPUs=4\nPartitionName=p Nodes=n[1-3],a",
        "AuthInfo=a\nAuthInfo=b",
        "PowerAction=x Location=slurmd Program=/bin/true",
    ],
)
def test_what_slurmctld_accepts_is_no_error(extra: str) -> None:
    assert messages(extra) == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("KillWait=1\nKillWait=2", "KillWait is given again (line 4)"),
        ("NodeName=n[1-3] State=CLOUD", "has no NodeAddr"),
        ("SelectTypeParameters=CR_Core_Memory", "without DefMemPerCPU"),
        ("PartitionName=p Nodes=n[1-3]", "dies if a node of n[1-3] does not exist"),
    ],
)
def test_traps_are_warnings(extra: str, expected: str) -> None:
    assert messages(extra) == []
    found = messages(extra, Level.WARNING)
    assert len(found) == 1
    assert expected in found[0]


def test_an_unscoped_device_file_is_a_warning() -> None:
    assert "waits for it for ever" in messages("", Level.WARNING, gres__conf="Name=gpu File=/dev/nvidia0")[0]
    assert messages("", Level.WARNING, gres__conf="NodeName=g1 Name=gpu File=/dev/nvidia0") == []


def test_cgroup_conf_is_checked_too() -> None:
    assert messages("", cgroup__conf="ConstrainCore=yes")[0].startswith("cgroup.conf:1: unknown key ConstrainCore")


def test_findings_in_an_included_file_name_that_file() -> None:
    assert messages("include more.conf", more__conf="\nOops=1")[0].startswith("more.conf:2: unknown key Oops")


TOPOLOGY = """
- topology: topo-block
  cluster_default: true
  block: {block_sizes: [1, 2], blocks: [{block: b1}, {block: b2}]}
- topology: topo-tree
  tree: {switches: [{switch: s0, children: "s[1-2]"}, {switch: s1}, {switch: s2}]}
"""


def test_a_topology_that_nodes_still_carry_must_stay() -> None:
    files = {"slurm.conf": HEAD, "topology.yaml": TOPOLOGY}
    assert lint(files, Facts(topologies=frozenset({"topo-block:b1", "topo-tree:s2"}))) == []
    gone = errors(lint(files, Facts(topologies=frozenset({"topo-block:b3", "other:x"}))))
    assert [finding.message for finding in gone] == [
        "nodes still carry the topology other:x",
        "nodes still carry the topology topo-block:b3",
    ]
    assert errors(lint({"slurm.conf": HEAD}, Facts(topologies=frozenset({"topo-block:b1"}))))


@pytest.mark.parametrize("text", ["garbage: [", "a: 1", "- tree: {}", "- topology: t\n- topology: t"])
def test_a_topology_file_that_cannot_be_loaded_is_an_error(text: str) -> None:
    assert len(messages("", topology__yaml=text)) == 1


def test_sizes() -> None:
    assert "MaxNodeCount=1024 is less than the 2000 workers" in str(
        errors(lint({"slurm.conf": HEAD + "MaxNodeCount=1024\n"}, Facts(workers=2000)))[0]
    )
    assert "a ConfigMap holds" in messages("", big="x" * 1024 * 1024)[0]


def test_nodes_that_slurmctld_knows_may_be_named() -> None:
    files = {"slurm.conf": HEAD + "PartitionName=p Nodes=w-0\n"}
    assert lint(files, Facts(nodes=frozenset({"w-0"}))) == []


def test_slurmdbd_conf_is_checked() -> None:
    assert lint_slurmdbd("DbdHost=a\nStoragePass=x\n") == []
    assert "unknown key StorageHots" in str(lint_slurmdbd("StorageHots=a\n")[0])
