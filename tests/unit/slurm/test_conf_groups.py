"""The groups of a generated slurm.conf, read back and closed to new jobs."""

import pytest

from slurm_operator.slurm.conf.groups import closed, read_groups, read_own_partitions, stands_alone
from slurm_operator.slurm.conf.lint import errors, lint
from slurm_operator.slurm.conf.writer import Host, NodeGroup, SlurmConf, cgroup_conf, slurm_conf

WITH_DEFAULTS = """
PartitionName=DEFAULT MaxTime=2 Nodes=ALL
PartitionName=a MaxTime=3
PartitionName=default LLN=NO
PartitionName=b
"""
OPTIONS = ["", "State=UP MaxTime=UNLIMITED", 'AllowAccounts="a b" Default=YES # for State=UP', "QOS=a\\#b"]


def written(*groups: NodeGroup, extra: str = "") -> str:
    return slurm_conf(SlurmConf(cluster_name="slurm", hosts=(Host("ctl"),), service="ctl", groups=groups, extra=extra))


@pytest.mark.parametrize("extra", ["", "# NodeSets and partitions\nNodeSet=x Feature=x\nPartitionName=x Nodes=x\n"])
@pytest.mark.parametrize("options", OPTIONS)
def test_groups_are_read_back_as_they_were_written(options: str, extra: str) -> None:
    groups = (NodeGroup("b", options), NodeGroup("a"), NodeGroup("c", ""))
    assert read_groups(written(*groups, extra=extra)) == groups


@pytest.mark.parametrize("conf", ["", "ClusterName=x\n", written(), written(extra="PartitionName=all Nodes=all\n")])
def test_only_generated_groups_are_read(conf: str) -> None:
    assert read_groups(conf) == ()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", "State=DRAIN"),
        ("State=UP MaxTime=2", "MaxTime=2 State=DRAIN"),
        ("state=up STATE=DOWN default=yes MaxTime=2", "MaxTime=2 State=DRAIN"),
        ('AllowAccounts="a b" Default=YES # for State=UP', 'AllowAccounts="a b" State=DRAIN'),
        ("QOS=a\\#b", "QOS=a\\#b State=DRAIN"),
        ('MaxTime=2 QOS="a#b"', "MaxTime=2 State=DRAIN"),
        ('QOS="a\\"b" MaxTime=2', "MaxTime=2 State=DRAIN"),
    ],
)
def test_a_closed_partition_keeps_its_other_options(options: str, wanted: str) -> None:
    group = closed(NodeGroup("a", options))
    assert group == NodeGroup("a", wanted)
    assert closed(group) == group
    conf = written(group)
    assert read_groups(conf) == (group,)
    assert errors(lint({"slurm.conf": conf, "cgroup.conf": cgroup_conf()})) == []


def test_kept_partitions_of_the_administrator_are_read_back() -> None:
    groups = (NodeGroup("a", "Nodes=ALL State=DRAIN", own=True), NodeGroup("b", "MaxTime=1"), NodeGroup("c"))
    mixed = (*groups, NodeGroup("c", "Nodes=b State=DRAIN", own=True), NodeGroup("d", "State=DRAIN", own=True))
    conf = written(*mixed, extra="PartitionName=e Nodes=ALL\n")
    assert read_groups(conf) == mixed
    assert conf.count("NodeSet=") == 2
    assert errors(lint({"slurm.conf": conf, "cgroup.conf": cgroup_conf()})) == []


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ("", ()),
        ("MinJobAge=3\n", ()),
        ("PartitionName=a Nodes=ALL # all\n", (NodeGroup("a", "Nodes=ALL", own=True),)),
        (
            WITH_DEFAULTS,
            (
                NodeGroup("a", "MaxTime=3 Nodes=ALL", own=True),
                NodeGroup("b", "LLN=NO MaxTime=2 Nodes=ALL", own=True),
            ),
        ),
        ("# Extra\nPartitionName=a \\\n  Nodes=ALL\n", (NodeGroup("a", "Nodes=ALL", own=True),)),
    ],
)
def test_partitions_of_the_administrator_are_read_with_their_defaults(extra: str, found: tuple[NodeGroup, ...]) -> None:
    assert read_own_partitions(written(NodeGroup("x", ""), extra=extra)) == found


@pytest.mark.parametrize(
    ("options", "alone"),
    [("", True), ("Nodes=ALL", True), ("Nodes=a,n[1-2]", True), ("Nodes=a,b", False), ("Nodes=n3", False)],
)
def test_a_partition_can_be_kept_if_its_nodes_stay(options: str, alone: bool) -> None:
    assert stands_alone(NodeGroup("p", options, own=True), "NodeName=n[1-2] CPUs=1\n", {"a"}) == alone


@pytest.mark.parametrize(
    ("group", "bare"),
    [
        (NodeGroup("a", "MaxTime=2x State=UP"), NodeGroup("a", "State=DRAIN")),
        (NodeGroup("a", "maxtime=2x nodes=b State=UP", own=True), NodeGroup("a", "nodes=b State=DRAIN", own=True)),
    ],
)
def test_a_partition_whose_options_slurmctld_may_refuse_is_closed_without_them(
    group: NodeGroup, bare: NodeGroup
) -> None:
    assert closed(group, bare=True) == bare
    assert closed(bare) == closed(bare, bare=True) == bare
