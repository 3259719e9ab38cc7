"""The generated files: order and conditions of every line, stability, and what a user's text may not do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.conf import lint
from slurm_operator.slurm.conf.parser import parse
from slurm_operator.slurm.conf.ssh import authorized_keys, login_sshd_config, worker_sshd_config
from slurm_operator.slurm.conf.writer import (
    MAX_NODE_COUNT,
    Endpoint,
    Host,
    NodeGroup,
    Scripts,
    SlurmConf,
    SlurmdbdConf,
    cgroup_conf,
    max_node_count,
    merge_options,
    minimal_slurm_conf,
    slurm_conf,
    slurmdbd_conf,
)

SMALL = SlurmConf(
    cluster_name="slurm_slurm",
    hosts=(Host("slurm-controller-0", "slurm-controller-0.slurm-controller-internal.slurm"),),
    service="slurm-controller.slurm",
)
DATABASE = SlurmdbdConf(
    host="slurm-accounting-0",
    storage=Endpoint("mariadb", 3306),
    database="slurm_acct_db",
    user="slurm",
    password="secret",
)


def content(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and not line.startswith("#")]


def test_the_worked_example() -> None:
    conf = replace(
        SMALL,
        groups=(NodeGroup("slinky"),),
        extra="SlurmctldParameters=enable_stepmgr\nPartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED\n",
    )
    assert content(slurm_conf(conf)) == [
        "ClusterName=slurm_slurm",
        "SlurmUser=slurm",
        "SlurmctldHost=slurm-controller-0(slurm-controller-0.slurm-controller-internal.slurm)",
        "SlurmctldPort=6817",
        "SlurmctldAddr=slurm-controller.slurm",
        "StateSaveLocation=/var/spool/slurmctld/slurm_slurm",
        "SlurmdUser=root",
        "SlurmdPort=6818",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "MaxNodeCount=1024",
        "MailProg=/bin/true",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmSchedLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key",
        "AuthInfo=use_client_ids",
        "SlurmctldParameters=enable_configless,reconfig_on_restart",
        "AccountingStorageType=accounting_storage/none",
        "NodeSet=slinky Feature=slinky",
        "SlurmctldParameters=enable_stepmgr",
        "PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED",
        "SlurmctldParameters=enable_configless,enable_stepmgr,reconfig_on_restart",
    ]


def test_everything_at_once() -> None:
    conf = replace(
        SMALL,
        hosts=(Host("c-0", "c-0.int.ns"), Host("c-1", "c-1.int.ns")),
        accounting=Endpoint("acct-accounting", 6819),
        jwks=True,
        metrics=True,
        max_nodes=4096,
        scripts=Scripts(("p1", "p2"), ("e",), ("pc",), ("ec",)),
        groups=(NodeGroup("a", "MaxTime=60"), NodeGroup("b", "")),
    )
    lines = content(slurm_conf(conf))
    assert lines[2:4] == ["SlurmctldHost=c-0(c-0.int.ns)", "SlurmctldHost=c-1(c-1.int.ns)"]
    assert "MaxNodeCount=4096" in lines
    assert lines[18:] == [
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json",
        "AuthInfo=use_client_ids",
        "SlurmctldParameters=enable_configless,reconfig_on_restart",
        "MetricsType=metrics/openmetrics",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=acct-accounting",
        "AccountingStoragePort=6819",
        "PrologSlurmctld=/etc/slurm/pc",
        "EpilogSlurmctld=/etc/slurm/ec",
        "Prolog=p1",
        "Prolog=p2",
        "Epilog=e",
        "NodeSet=a Feature=a",
        "PartitionName=a Nodes=a MaxTime=60",
        "NodeSet=b Feature=b",
        "PartitionName=b Nodes=b",
    ]
    assert (
        lint.errors(lint.lint({"slurm.conf": slurm_conf(conf), "p1": "", "p2": "", "e": "", "pc": "", "ec": ""})) == []
    )


def test_minimal_conf_of_an_external_cluster() -> None:
    assert content(minimal_slurm_conf("c", Endpoint("ctl.example.com", 7000), None)) == [
        "ClusterName=c",
        "SlurmUser=slurm",
        "SlurmctldHost=ctl.example.com",
        "SlurmctldPort=7000",
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        "AccountingStorageType=accounting_storage/none",
    ]


def test_slurmdbd_conf() -> None:
    assert content(slurmdbd_conf(replace(DATABASE, extra="authinfo=x\nDebugLevel=info"))) == [
        "DbdHost=slurm-accounting-0",
        "DbdPort=6819",
        "SlurmUser=slurm",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key",
        "AuthInfo=use_client_ids",
        "StorageType=accounting_storage/mysql",
        "StorageHost=mariadb",
        "StoragePort=3306",
        "StorageUser=slurm",
        "StorageLoc=slurm_acct_db",
        "StoragePass=secret",
        "LogFile=/dev/null",
        "authinfo=x",
        "DebugLevel=info",
        "AuthInfo=use_client_ids,x",
    ]


@given(st.text(alphabet=st.characters(exclude_categories=["C"], exclude_characters='"'), min_size=1, max_size=40))
def test_a_password_arrives_whole(password: str) -> None:
    text = slurmdbd_conf(replace(DATABASE, password=password))
    conf = parse(text)
    assert conf.get("StoragePass") == password
    assert conf.get("LogFile") == "/dev/null"
    assert lint.lint_slurmdbd(text) == []


@pytest.mark.parametrize("password", ['a "quoted" word', '"all"', "line\nbreak"])
def test_a_password_that_slurm_cannot_hold_is_refused_by_name(password: str) -> None:
    with pytest.raises(ValueError, match="StoragePass"):
        slurmdbd_conf(replace(DATABASE, password=password))


@pytest.mark.parametrize("password", ["p#ss", 'a"b', "two words", "back\\slash\\", "#", "x\\#y"])
def test_special_passwords_are_kept(password: str) -> None:
    assert parse(slurmdbd_conf(replace(DATABASE, password=password))).get("StoragePass") == password


@pytest.mark.parametrize(
    ("users", "merged"),
    [
        ("enable_stepmgr", "enable_configless,enable_stepmgr,reconfig_on_restart"),
        ("Enable_Configless,", "enable_configless,reconfig_on_restart"),
        ("node_reg_mem_percent=50", "enable_configless,node_reg_mem_percent=50,reconfig_on_restart"),
        ("a,a", "a,enable_configless,reconfig_on_restart"),
    ],
)
def test_merged_parameters_hold_ours_and_theirs_once(users: str, merged: str) -> None:
    """scenario 177"""
    assert merge_options(["enable_configless", "reconfig_on_restart"], users) == merged


def test_merged_parameters_keep_the_case_of_paths() -> None:
    """scenario 177"""
    conf = replace(SMALL, extra="authaltparameters = JWT_KEY=/x,jwks=/Etc/My.json # ours wins\n")
    assert parse(slurm_conf(conf)).get("AuthAltParameters") == "jwks=/Etc/My.json,jwt_key=/etc/slurm/jwt.key"


def test_merged_parameters_see_comments_continuations_and_the_last_duplicate() -> None:
    """scenario 177"""
    extra = "SlurmctldParameters=first\n# SlurmctldParameters=no\nSLURMCTLDPARAMETERS=one,\\\ntwo # three\n"
    merged = parse(slurm_conf(replace(SMALL, extra=extra))).get("SlurmctldParameters")
    assert merged == "enable_configless,one,reconfig_on_restart,two"


def test_an_open_continuation_in_extra_conf_swallows_nothing_of_ours() -> None:
    conf = replace(SMALL, extra="AuthInfo=a\nReturnToService=2\\")
    assert parse(slurm_conf(conf)).get("AuthInfo") == "a,use_client_ids"


@pytest.mark.parametrize("options", ["MaxTime=1\nPartitionName=evil", "MaxTime=1\rX=1", "MaxTime=1 \\", "\0"])
def test_a_partition_cannot_add_lines(options: str) -> None:
    """scenario 180"""
    with pytest.raises(ValueError, match="partition a"):
        slurm_conf(replace(SMALL, groups=(NodeGroup("a", options),)))


@given(workers=st.integers(0, 100_000))
def test_there_is_room_for_twice_the_workers(workers: int) -> None:
    count = max_node_count(workers)
    assert 1024 <= count <= MAX_NODE_COUNT
    assert count >= min(2 * workers, MAX_NODE_COUNT)


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=20))
def test_the_room_never_shrinks_and_changes_only_when_it_must(history: list[int]) -> None:
    current = 0
    for workers in history:
        count = max_node_count(workers, current)
        assert count >= max(current, workers)
        if current >= max(workers, 1024):
            assert count == current
        current = count


def test_the_small_files() -> None:
    assert content(cgroup_conf()) == ["CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes"]
    assert login_sshd_config("Port 2222") == (
        "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\nX11Forwarding yes\n"
        "Subsystem sftp internal-sftp\nPort 2222\n"
    )
    assert worker_sshd_config() == (
        "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\nSubsystem sftp internal-sftp\n"
        "AuthenticationMethods publickey password\n"
    )
    assert authorized_keys("ssh-ed25519 AAAA me\n").split("\n")[1] == "ssh-ed25519 AAAA me"


@pytest.mark.parametrize(
    ("extra", "programs"),
    [
        ("", ["/bin/true"]),
        ("MinJobAge=3\n", ["/bin/true"]),
        ("mailprog=/usr/bin/mail\n", ["/usr/bin/mail"]),
    ],
)
def test_without_a_mail_program_slurmctld_need_not_complain(extra: str, programs: list[str]) -> None:
    conf = slurm_conf(SlurmConf(cluster_name="c", hosts=(Host("ctl"),), service="ctl", extra=extra))
    assert [line.value for line in parse(conf).all("MailProg")] == programs
