"""A Slurm in memory that answers as slurmrestd 26.05 does, quirks included, and fails on demand.

`FakeSlurm` holds the cluster. It is reached through `FakeTransport` (no sockets: works in virtual time) or through
`FakeSlurmrestd`, which serves it over HTTP on loopback and, like the real one, sends every refusal twice.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from slurm_operator.slurm.errors import NO_SUCH_JOB, Unreachable
from slurm_operator.slurm.hostlist import compress, expand
from slurm_operator.slurm.jwt import InvalidTokenError, verify
from slurm_operator.slurm.rest import VERSIONS

KEY = b"0123456789abcdef0123456789abcdef"
BASES = ("IDLE", "MIXED", "ALLOCATED", "DOWN")


@dataclass(frozen=True)
class Fault:
    """How slurmrestd misbehaves; applies to calls for which `only` holds."""

    status: int = 0
    number: int = 0
    text: bytes = b""
    delay: float = 0.0
    killed: bool = False
    only: Callable[[str], bool] = lambda call: True


def hang() -> Fault:
    return Fault(delay=1e9)


def slow(seconds: float) -> Fault:
    return Fault(delay=seconds)


def garbage(text: bytes = b'{"nodes": [{"na') -> Fault:
    return Fault(text=text)


def refuse(status: int, number: int = 0) -> Fault:
    return Fault(status=status, number=number)


def killed() -> Fault:
    return Fault(killed=True)


@dataclass
class FakeNode:
    name: str
    address: str = "10.0.0.1"
    cpus: int = 4
    down: bool = False
    flags: list[str] = field(default_factory=lambda: ["DYNAMIC_NORM"])
    reason: str = ""
    comment: str = ""
    extra: str = ""
    features: list[str] = field(default_factory=list)
    features_act: list[str] = field(default_factory=list)
    topology_str: str = ""
    slurmd_start: int = 0
    reservation: str = ""
    heard_at: float = 0.0
    """When its slurmd registers after an undrain or resume: until then it is NOT_RESPONDING."""


@dataclass
class FakeJob:
    job_id: int
    nodes: list[str]
    start: int
    minutes: int | None
    """None: no time limit."""
    cpus: int = 4
    state: str = "RUNNING"
    completing: bool = False
    """Ended, but its epilog still runs: it holds no CPU and its nodes show COMPLETING."""
    partition: str = "all"
    required: str = ""
    excluded: str = ""
    name: str = "fake"


@dataclass(frozen=True)
class FakeAnswer:
    status: int
    body: bytes = b""
    kind: str = "application/json"


def _number(value: int | None, *, infinite: bool = False) -> dict[str, object]:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


class FakeSlurm:
    def __init__(self, now: Callable[[], float], *, key: bytes = KEY, versions: Iterable[str] = VERSIONS) -> None:
        self.now = now
        """slurmctld's own clock, which a test may set."""
        self.key = key
        self.versions = tuple(versions)
        self.nodes: dict[str, FakeNode] = {}
        self.jobs: dict[int, FakeJob] = {}
        self.reservations: dict[str, dict[str, Any]] = {}
        self.partitions = {"all": "UP"}
        """State by name, as of the last reconfigure."""
        self.calls: list[str] = []
        self.whole_lists = 0
        """Lists of all nodes that were asked for without a time of the last change."""
        self.tokens: list[str] = []
        self.fault: Fault | None = None
        self.controller_up = True
        self.database_up: bool | None = None
        """Whether slurmdbd reaches its database; None: there is no accounting."""
        self.list_seconds = 0.0
        """How long a list of all nodes is under way: it shows what was so before."""
        self.registration_seconds = 0.0
        """How long a slurmd takes to register after its node was undrained or resumed."""
        self._counted: dict[str, int] = {}
        self.boot = self._first_boot = int(now())
        self._changed = self._jobs_changed = self.boot

    # --- what a test does to the cluster --------------------------------------------------------------------------

    def add_nodes(self, hostlist: str, **fields: Any) -> None:
        for name in expand(hostlist):
            self.nodes[name] = FakeNode(name, **copy.deepcopy(fields))
        self.touch()

    def delete_nodes(self, names: Iterable[str]) -> None:
        """Delete records. As in slurmctld 26.05, the time of the last change stays when the last record goes."""
        for name in names:
            del self.nodes[name]
        if self.nodes:
            self.touch()

    def register(self, name: str, **fields: Any) -> None:
        """A slurmd registers: a record that was deleted while its message was under way is made again, undrained."""
        if name not in self.nodes:
            self.nodes[name] = FakeNode(name, **copy.deepcopy(fields))
        self.nodes[name].heard_at = 0.0
        self.touch()

    def touch(self) -> None:
        """Something changed in the node table, as every job start and ping round does."""
        self._changed = int(self.now())

    def start_job(self, job_id: int, hostlist: str, *, minutes: int | None = 60, cpus: int = 4, **more: Any) -> FakeJob:
        """A job on these nodes; with state="PENDING" and an empty hostlist, one that waits."""
        job = FakeJob(job_id, expand(hostlist), int(self.now()), minutes, cpus, **more)
        self.jobs[job_id] = job
        self._job_changed()
        return job

    def end_job(self, job_id: int, *, completing: bool = False) -> None:
        self.jobs[job_id].state = "COMPLETED"
        self.jobs[job_id].completing = completing
        self._job_changed()

    def suspend_job(self, job_id: int) -> None:
        """As with CR_Core: the node shows IDLE, and its record may be deleted."""
        self.jobs[job_id].state = "SUSPENDED"
        self._job_changed()

    def reconfigure(self, partitions: Mapping[str, str]) -> None:
        """Take up these partitions; as in Slurm, unfinished jobs end whose partitions are all gone."""
        self.partitions = {"all": "UP", **partitions}
        for job in self.jobs.values():
            gone = self.partitions.keys().isdisjoint(job.partition.split(","))
            if gone and job.state in ("PENDING", "RUNNING", "SUSPENDED"):
                job.state = "NODE_FAIL"
        self._job_changed()

    def restart(self, *, empty: bool = False) -> None:
        """slurmctld starts anew; `empty`: its state directory was lost."""
        self.boot = int(self.now())
        if empty:
            self.nodes, self.jobs, self.reservations = {}, {}, {}
        self._job_changed()

    def _job_changed(self) -> None:
        self._jobs_changed = int(self.now())
        self.touch()

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    def count(self, prefix: str) -> int:
        return sum(call.startswith(prefix) for call in self.calls)

    # --- the server -----------------------------------------------------------------------------------------------

    async def answer(self, method: str, target: str, token: str | None, body: bytes | None) -> FakeAnswer:
        path = urlsplit(target).path
        call = f"{method} {'/'.join(path.split('/')[3:])}"
        self.calls.append(call)
        fault = self.fault
        if fault and fault.only(call):
            await asyncio.sleep(fault.delay)
            if fault.killed:
                raise Unreachable("", "Connect call failed")
            if fault.status:
                return _refusal(fault.status, fault.number, "injected")
            if fault.text:
                return FakeAnswer(200, fault.text)
        given = self._serve(method, target, token, body)
        if call == "GET nodes/" and given.status == 200:
            await asyncio.sleep(self.list_seconds)
        return given

    def _serve(self, method: str, target: str, token: str | None, body: bytes | None) -> FakeAnswer:
        parts = urlsplit(target)
        words = parts.path.lstrip("/").split("/")
        offered = ("slurm",) if self.database_up is None else ("slurm", "slurmdb")
        if len(words) < 3 or words[0] not in offered or words[1] not in self.versions:
            return FakeAnswer(404, b"Unable to find requested URL endpoint.", "text/plain")
        if token is None:
            return FakeAnswer(401, b"Authentication failure", "text/plain")
        self.tokens.append(token)
        if words[2] == "ping":
            return _json({"pings": [{"hostname": "ctl", "responding": self.controller_up, "primary": True}]})
        try:
            verify(token, self.key, self.now())
        except InvalidTokenError:
            return _refusal(511, 1007, "Protocol authentication error")
        if not self.controller_up:
            return _refusal(502, 1800, "Unable to contact slurm controller (connect failure)")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        route = getattr(self, f"_{method.lower()}_{words[2]}", None)
        if route is None:
            return FakeAnswer(404, b"Unable to find requested URL endpoint.", "text/plain")
        answer: FakeAnswer = route(unquote("/".join(words[3:])), query, orjson.loads(body) if body else {})
        return answer

    def _get_nodes(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        self._recount()
        self.whole_lists += "update_time" not in query
        heard = [int(node.heard_at) for node in self.nodes.values() if node.heard_at <= self.now()]
        if int(query.get("update_time", 0)) - 1 >= max(self._changed, *heard, 0):
            return FakeAnswer(304)
        nodes = [self._node(node) for node in self.nodes.values()]
        return _json({"nodes": nodes, "last_update": _number(int(self.now()))})

    def _get_node(self, name: str, query: dict[str, str], body: Any) -> FakeAnswer:
        if name not in self.nodes:
            return _refusal(200, 0, f"Failure to query node {name}", "No error")
        return _json({"nodes": [self._node(self.nodes[name])], "last_update": _number(int(self.now()))})

    def _post_node(self, name: str, query: dict[str, str], body: Any) -> FakeAnswer:
        return self._update(expand(name), body)

    def _post_nodes(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        return self._update([name for hostlist in body.pop("name") for name in expand(hostlist)], body)

    def _delete_node(self, hostlist: str, query: dict[str, str], body: Any) -> FakeAnswer:
        names = expand(hostlist)
        if any(name not in self.nodes for name in names):
            return _refusal(422, 2018, "Invalid node name specified")
        if any(self._busy(name) for name in names):
            return _refusal(422, 2016, "Requested nodes are busy")
        self.delete_nodes(names)
        return _json({})

    def _get_job(self, number: str, query: dict[str, str], body: Any) -> FakeAnswer:
        found = self.jobs.get(int(number))
        if found is None:
            return _refusal(404, NO_SUCH_JOB, "Invalid job id specified")
        return _json({"jobs": [_job(found)], "last_update": _number(int(self.now()))})

    def _get_jobs(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        if rest == "state/":
            return _json({"jobs": [{"job_id": str(job.job_id), "state": [job.state]} for job in self.jobs.values()]})
        if int(query.get("update_time", 0)) - 1 >= self._jobs_changed:
            return _json({"jobs": [], "last_update": _number(0), "warnings": [{"description": "No job changes"}]})
        jobs = [_job(job) for job in self.jobs.values()]
        warnings = [] if jobs else [{"description": "Zero jobs to dump"}]
        return _json({"jobs": jobs, "last_update": _number(int(self.now())), "warnings": warnings})

    def _get_clusters(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        if not self.database_up:
            return _refusal(502, 7000, "Failed to open slurmdbd connection", "Unable to connect to database")
        return _json({"clusters": [{"name": "fake", "nodes": ""}]})

    def _get_diag(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        times = {"req_time": _number(int(self.now())), "req_time_start": _number(self.boot)}
        return _json({"statistics": {**times, "jobs_running": len(self.jobs)}})

    def _get_reservations(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        return _json({"reservations": list(self.reservations.values())})

    def _get_reservation(self, name: str, query: dict[str, str], body: Any) -> FakeAnswer:
        if not self.reservations:
            return _refusal(200, 0, "Unable to query reservations", "No error")
        if name not in self.reservations:
            return _refusal(422, 9000, f"Unable to find reservation {name}")
        return _json({"reservations": [self.reservations[name]]})

    def _post_reservation(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        start = body["start_time"]["number"]
        if start < self.now():
            return _refusal(422, 2054, "Invalid time specified")
        shown = {
            "name": body["name"],
            "node_list": compress(name for hostlist in body["node_list"] for name in expand(hostlist)),
            "users": ",".join(body["users"]),
            "flags": [*body["flags"], "SPEC_NODES"],
            "start_time": _number(start),
            "end_time": _number(start + 60 * body["duration"]["number"]),
        }
        self.reservations[body["name"]] = shown
        return _json({"reservations": []})

    def _delete_reservation(self, name: str, query: dict[str, str], body: Any) -> FakeAnswer:
        if self.reservations.pop(name, None) is None:
            return _refusal(422, 2053, "Requested reservation is invalid")
        return _json({})

    def _get_reconfigure(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        self.restart()
        return _json({})

    def _get_partitions(self, rest: str, query: dict[str, str], body: Any) -> FakeAnswer:
        nodes = {"configured": compress(self.nodes), "total": len(self.nodes)}
        found = [
            {"name": name, "nodes": nodes, "partition": {"state": [state]}} for name, state in self.partitions.items()
        ]
        return _json({"partitions": found})

    # --- Slurm's semantics ----------------------------------------------------------------------------------------

    def _update(self, names: list[str], body: dict[str, Any]) -> FakeAnswer:
        words = body.pop("state", [])
        if any(word not in ("DRAIN", "UNDRAIN", "RESUME", "DOWN", "IDLE") for word in words):
            return _refusal(500, 9207, "Data parser unable to parse invalid flag")
        for name in names:
            if node := self.nodes.get(name):
                for key, value in body.items():
                    if hasattr(node, key):
                        setattr(node, key, value)
                for word in words:
                    _transition(node, word)
                if not {"UNDRAIN", "RESUME", "IDLE"}.isdisjoint(words):
                    node.heard_at = self.now() + self.registration_seconds
        if not self.nodes.keys().isdisjoint(names):
            self.touch()
        if any(name not in self.nodes for name in names):
            return _refusal(422, 2018, "Invalid node name specified")
        return _json({})

    def _recount(self) -> None:
        """slurmctld counts used CPUs when all nodes are asked for; a single node is shown as of the last count."""
        self._counted = {}
        for job in self.jobs.values():
            for name in job.nodes if job.state == "RUNNING" else ():
                self._counted[name] = self._counted.get(name, 0) + job.cpus

    def _busy(self, name: str) -> bool:
        return any(name in job.nodes and (job.state == "RUNNING" or job.completing) for job in self.jobs.values())

    def _node(self, node: FakeNode) -> dict[str, Any]:
        here = [job for job in self.jobs.values() if node.name in job.nodes]
        used = self._counted.get(node.name, 0)
        running = any(job.state == "RUNNING" for job in here)
        base = "DOWN" if node.down else "MIXED" if 0 < used < node.cpus else "ALLOCATED" if running or used else "IDLE"
        completing = ["COMPLETING"] if any(job.completing for job in here) else []
        unheard = ["NOT_RESPONDING"] if node.heard_at > self.now() and "NOT_RESPONDING" not in node.flags else []
        return {
            "architecture": "x86_64",
            "boot_time": _number(node.slurmd_start),
            "energy": {"average_watts": 0, "current_watts": _number(0)},
            "cpus": node.cpus,
            "extra": node.extra,
            "features": node.features,
            "active_features": node.features_act,
            "last_busy": _number(self._first_boot),
            "name": node.name,
            "partitions": sorted({"all", *node.features}),
            "address": node.address,
            "hostname": node.name,
            "state": [base, *node.flags, *unheard, *completing],
            "real_memory": 1000,
            "comment": node.comment,
            "reason": node.reason,
            "reason_changed_at": _number(0),
            "reason_set_by_user": "slurm" if node.reason else "",
            "reservation": node.reservation,
            "alloc_cpus": used,
            "slurmd_start_time": _number(node.slurmd_start),
            "topology": node.topology_str,
            "version": "26.05.5",
        }


def _transition(node: FakeNode, word: str) -> None:
    if word == "DRAIN" and "DRAIN" not in node.flags:
        node.flags.append("DRAIN")
    if word in ("UNDRAIN", "RESUME", "IDLE") and "DRAIN" in node.flags:
        node.flags.remove("DRAIN")
    if word in ("DOWN", "RESUME", "IDLE"):
        node.down = word == "DOWN"


def _job(job: FakeJob) -> dict[str, Any]:
    minutes = job.minutes if job.minutes is not None else 365 * 24 * 60
    return {
        "job_id": job.job_id,
        "job_state": [job.state, *(["COMPLETING"] if job.completing else [])],
        "nodes": compress(job.nodes),
        "start_time": _number(job.start),
        "end_time": _number(job.start + 60 * minutes),
        "time_limit": _number(job.minutes, infinite=job.minutes is None),
        "user_id": 2001,
        "user_name": "alice",
        "partition": job.partition,
        "required_nodes": job.required,
        "excluded_nodes": job.excluded,
        "name": job.name,
    }


def _json(answer: dict[str, Any], status: int = 200) -> FakeAnswer:
    """Bytes that are not UTF-8, which Python shows as lone surrogates (`os.fsdecode`), are sent as they are."""
    whole = {"errors": [], "warnings": [], **answer}
    try:
        body = orjson.dumps(whole, option=orjson.OPT_INDENT_2)
    except orjson.JSONEncodeError:
        body = json.dumps(whole, indent=2, ensure_ascii=False).encode(errors="surrogateescape")
    return FakeAnswer(status, body)


def _refusal(status: int, number: int, description: str, error: str = "") -> FakeAnswer:
    entry = {"description": description, "error_number": number, "error": error or description, "source": "fake"}
    return _json({"errors": [entry]}, status)


class _FakeResponse:
    def __init__(self, answer: FakeAnswer) -> None:
        self.status = answer.status
        self._body = answer.body

    async def chunks(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), 1 << 16):
            yield self._body[at : at + (1 << 16)]


class FakeTransport:
    """Hands requests straight to a FakeSlurm."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self._slurm = slurm

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> AsyncIterator[_FakeResponse]:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}"
        yield _FakeResponse(await self._slurm.answer(method, target, headers.get("X-SLURM-USER-TOKEN"), body))

    async def close(self) -> None:
        return


class FakeSlurmrestd:
    """Serves a FakeSlurm on loopback: `async with FakeSlurmrestd(slurm) as server: server.url`."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        self.connections = 0
        self._port = 0

    async def __aenter__(self) -> "FakeSlurmrestd":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As `kill -9` would: open connections die; a later start listens at the same port."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(fields["content-length"])) if "content-length" in fields else None
        try:
            answer = await self.slurm.answer(method, target, fields.get("x-slurm-user-token"), body)
        except Unreachable:
            return False
        if answer.status == 304:
            writer.write(b"HTTP/1.1 304 NOT MODIFIED\r\n\r\n")
        elif answer.status == 200:
            writer.write(_http(answer, "keep-alive"))
        else:
            writer.write(_http(answer, "Close") + _http(FakeAnswer(answer.status, b"again", "text/plain"), "Close"))
        await writer.drain()
        return answer.status < 400


def _http(answer: FakeAnswer, connection: str) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} WHATEVER\r\nConnection: {connection}\r\n"
        f"Content-Length: {len(answer.body)}\r\nContent-Type: {answer.kind}\r\n\r\n"
    )
    return head.encode() + answer.body
