"""The groups of a generated slurm.conf, read back and closed to new jobs."""

import pytest

from slurm_operator.slurm.conf.groups import closed, read_groups
from slurm_operator.slurm.conf.lint import errors, lint
from slurm_operator.slurm.conf.writer import Host, NodeGroup, SlurmConf, cgroup_conf, slurm_conf

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
