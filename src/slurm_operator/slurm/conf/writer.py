"""The configuration files that the operator generates, as pure functions of plain values.

Nothing that a user writes can add a line of its own: single values are quoted, one-line texts are checked, and only
`extraConf` (free text by contract) is copied as it stands.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_operator.api import names
from slurm_operator.slurm.conf.parser import Line, Pair, one_line, parse, quote

CONF_DIR = "/etc/slurm"
STATE_DIR = "/var/spool/slurmctld"
LOG_DIR = "/var/log/slurm"

MIN_NODE_COUNT = 1024
MAX_NODE_COUNT = 65533  # what slurmctld can number

GROUPS = "NodeSets and partitions"
"""Title of the section that `groups.py` reads back."""

EXTRA = "Extra"
"""Title of the section that holds the user's own text."""
STAMP = "# Configuration "
"""Begins the last line of a delivered slurm.conf, which carries the hash of all files."""

_JWT_KEY = f"jwt_key={CONF_DIR}/jwt.key"
_JWKS = f"jwks={CONF_DIR}/jwks.json"


@dataclass(frozen=True, slots=True)
class Host:
    """A daemon's host name and, where it differs, the address at which it is reached."""

    name: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name}({self.address})" if self.address else self.name


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One Slurm NodeSet, and the options of its partition (None: it has no partition)."""

    name: str
    partition: str | None = None
    own: bool = False
    """A partition of the administrator's own: no Slurm NodeSet has its name, and the options name the nodes."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """File names below the configuration directory, in the order in which Slurm runs them."""

    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    prolog_slurmctld: tuple[str, ...] = ()
    epilog_slurmctld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConf:
    cluster_name: str
    hosts: tuple[Host, ...]
    service: str
    accounting: Endpoint | None = None
    jwks: bool = False
    metrics: bool = False
    max_nodes: int = MIN_NODE_COUNT
    scripts: Scripts = Scripts()
    groups: tuple[NodeGroup, ...] = ()
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmdbdConf:
    host: str
    storage: Endpoint
    database: str
    user: str
    password: str
    jwks: bool = False
    extra: str = ""


def max_node_count(workers: int, current: int = 0) -> int:
    """Room for twice the workers, in powers of two; never smaller than what runs already, so that it does not flap."""
    if current >= MIN_NODE_COUNT and current >= workers:
        return min(current, MAX_NODE_COUNT)
    return min(max(MIN_NODE_COUNT, 1 << (2 * workers - 1).bit_length()), MAX_NODE_COUNT)


def slurm_conf(conf: SlurmConf) -> str:
    merged = {"SlurmctldParameters": ["enable_configless", "reconfig_on_restart"], **_auth_parameters(conf.jwks)}
    return _document(
        ("General", _general(conf)),
        ("Logs", _logs()),
        ("Plugins", [*_auth(), *_parameters(merged), *_when(conf.metrics, MetricsType="metrics/openmetrics")]),
        ("Accounting", _accounting(conf.accounting)),
        ("Prolog and epilog", _scripts(conf.scripts)),
        (GROUPS, _groups(conf.groups)),
        *_extra(conf.extra, merged),
    )


def stamped(slurm_conf: str, config_hash: str) -> str:
    """Return the file with the hash by which the sidecar of slurmctld tells the operator what it has delivered."""
    return f"{slurm_conf}{STAMP}{config_hash}\n"


def unstamped(slurm_conf: str) -> str:
    """Return the file without that hash, which also changes with other files."""
    text, found, _ = slurm_conf.rpartition(STAMP)
    return text if found else slurm_conf


def stamp_of(slurm_conf: str) -> str:
    """Return that hash; nothing if the file has none."""
    _, found, config_hash = slurm_conf.rpartition(STAMP)
    return config_hash.strip() if found else ""


def minimal_slurm_conf(cluster_name: str, slurmctld: Endpoint, accounting: Endpoint | None) -> str:
    """What slurmrestd needs to find a slurmctld that runs elsewhere."""
    general = _pairs(
        ClusterName=cluster_name,
        SlurmUser=names.SLURM_USER,
        SlurmctldHost=slurmctld.host,
        SlurmctldPort=str(slurmctld.port),
    )
    return _document(("General", general), ("Plugins", _auth()), ("Accounting", _accounting(accounting)))


def slurmdbd_conf(conf: SlurmdbdConf) -> str:
    merged = _auth_parameters(conf.jwks)
    general = _pairs(DbdHost=conf.host, DbdPort=str(names.PORT_SLURMDBD), SlurmUser=names.SLURM_USER)
    auth = [*_pairs(AuthType="auth/slurm", AuthAltTypes="auth/jwt"), *_parameters(merged)]
    storage = _pairs(
        StorageType="accounting_storage/mysql",
        StorageHost=conf.storage.host,
        StoragePort=str(conf.storage.port),
        **({"StorageUser": conf.user} if conf.user else {}),
        StorageLoc=conf.database,
        StoragePass=conf.password,
    )
    logs = _pairs(LogFile="/dev/null")
    return _document(
        ("General", general), ("Plugins", auth), ("Storage", storage), ("Logs", logs), *_extra(conf.extra, merged)
    )


def cgroup_conf(plugin: str = "cgroup/v2") -> str:
    return _document(("General", _pairs(CgroupPlugin=plugin, IgnoreSystemd="yes")))


def merge_options(required: Iterable[str], users: str) -> str:
    """The sorted union of comma-separated options; an option of ours is not to be redefined, whatever its case."""
    mine = tuple(required)
    taken = {_option_name(option) for option in mine}
    theirs = (option.strip() for option in users.split(","))
    return ",".join(sorted({*mine, *(option for option in theirs if option and _option_name(option) not in taken)}))


def _option_name(option: str) -> str:
    return option.partition("=")[0].lower()


def _document(*sections: tuple[str, list[str]]) -> str:
    """Sections under a comment each: it also stops a continuation that the text before it may have left open."""
    return "".join(f"{line}\n" for title, lines in sections if lines for line in (f"# {title}", *lines))


def _pairs(**values: str) -> list[str]:
    return [str(Pair(key, value)) for key, value in values.items()]


def _when(condition: bool, **values: str) -> list[str]:
    return _pairs(**values) if condition else []


def _general(conf: SlurmConf) -> list[str]:
    return [
        *_pairs(ClusterName=conf.cluster_name, SlurmUser=names.SLURM_USER),
        *(str(Pair("SlurmctldHost", str(host))) for host in conf.hosts),
        *_pairs(
            SlurmctldPort=str(names.PORT_SLURMCTLD),
            SlurmctldAddr=conf.service,
            StateSaveLocation=f"{STATE_DIR}/{conf.cluster_name}",
            SlurmdUser="root",
            SlurmdPort=str(names.PORT_SLURMD),
            SlurmdSpoolDir="/var/spool/slurmd",
            MaxNodeCount=str(conf.max_nodes),
        ),
        # Images have no mail program, which slurmctld calls an error at each start.
        *_when(parse(conf.extra).get("MailProg") is None, MailProg="/bin/true"),
    ]


def _logs() -> list[str]:
    ctld = f"{LOG_DIR}/slurmctld.log"
    return _pairs(SlurmctldLogFile=ctld, SlurmSchedLogFile=ctld, SlurmdLogFile=f"{LOG_DIR}/slurmd.log")


def _auth() -> list[str]:
    return _pairs(AuthType="auth/slurm", CredType="cred/slurm", AuthAltTypes="auth/jwt")


def _auth_parameters(jwks: bool) -> dict[str, list[str]]:
    return {"AuthAltParameters": [_JWT_KEY, _JWKS] if jwks else [_JWT_KEY], "AuthInfo": ["use_client_ids"]}


def _parameters(merged: dict[str, list[str]]) -> list[str]:
    order = ("AuthAltParameters", "AuthInfo", "SlurmctldParameters")
    return _pairs(**{key: ",".join(merged[key]) for key in order if key in merged})


def _accounting(endpoint: Endpoint | None) -> list[str]:
    if endpoint is None:
        return _pairs(AccountingStorageType="accounting_storage/none")
    return _pairs(
        AccountingStorageType="accounting_storage/slurmdbd",
        AccountingStorageHost=endpoint.host,
        AccountingStoragePort=str(endpoint.port),
    )


def _scripts(scripts: Scripts) -> list[str]:
    """Those of slurmctld by their path; those of the workers by their bare name, so that configless ships them."""
    named = (
        *(("PrologSlurmctld", f"{CONF_DIR}/{name}") for name in scripts.prolog_slurmctld),
        *(("EpilogSlurmctld", f"{CONF_DIR}/{name}") for name in scripts.epilog_slurmctld),
        *(("Prolog", name) for name in scripts.prolog),
        *(("Epilog", name) for name in scripts.epilog),
    )
    return [str(Pair(key, value)) for key, value in named]


def _groups(groups: Iterable[NodeGroup]) -> list[str]:
    lines = []
    for group in groups:
        if not group.own:
            lines.append(str(Line((Pair("NodeSet", group.name), Pair("Feature", group.name)))))
        if group.partition is not None:
            nodes = () if group.own else (Pair("Nodes", group.name),)
            head = Line((Pair("PartitionName", group.name), *nodes))
            lines.append(f"{head} {one_line(group.partition, f'partition {group.name}')}".rstrip())
    return lines


def _extra(extra: str, merged: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """The user's text, then once more each list of options that it would otherwise have taken from us."""
    if not extra.strip():
        return []
    users = parse(extra)
    again = [
        f"{key}={quote(merge_options(options, value), key)}"
        for key, options in sorted(merged.items(), reverse=True)
        if (value := users.get(key)) is not None
    ]
    return [(EXTRA, [extra.rstrip("\n")]), ("Merged", again)]


def extra_line(text: str, extra: str, number: int) -> int | None:
    """Return which line of the user's own text a line of a generated file is, if any."""
    begin = text.split("\n").index(f"# {EXTRA}") + 1 if extra.strip() else number
    end = begin + extra.rstrip("\n").count("\n") + 1
    return number - begin if begin < number <= end else None
