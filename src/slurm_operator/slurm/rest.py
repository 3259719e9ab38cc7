"""One call to slurmrestd: token, version, deadline, places in flight, circuit breaker, decoding, typed errors.

`client.py` says which calls exist; this says what each of them goes through.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

import msgspec

from slurm_operator.slurm.breaker import Breaker
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.decode import UNREADABLE, decode_replacing
from slurm_operator.slurm.errors import (
    AuthFailed,
    DeadlineExceeded,
    Garbage,
    NotFound,
    SlurmError,
    Unsupported,
    from_answer,
)
from slurm_operator.slurm.jwt import TokenSource
from slurm_operator.slurm.model import Answer
from slurm_operator.slurm.transport import MOST_IN_FLIGHT, Response, Transport

VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
"""Data parsers that we know, newest first."""
DEADLINE = 45.0
"""Longer than a slurmrestd that is merely slow needs: a late answer is still an answer."""

_OK, _NOT_MODIFIED, _NOT_FOUND = 200, 304, 404
_ERRORS_ONLY = msgspec.json.Decoder(Answer)

AnswerT = TypeVar("AnswerT", bound=Answer)
AnswerT_co = TypeVar("AnswerT_co", bound=Answer, covariant=True)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    """Below the version, percent-encoded, with its query."""
    body: object = None
    plugin: str = "slurm"
    missing: Collection[int] = ()
    """Error numbers by which Slurm says that the object is not there."""
    bulk: bool = False
    probe: bool = False
    """The regular try of a poller: sent although the circuit is open or other calls wait."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def kind(self) -> str:
        """Method and resource without the object's name, so that there are only a few."""
        path = self.path.partition("?")[0]
        resource, slash, name = path.rpartition("/")
        return f"{self.method} {resource if slash else name}"


class Cost(msgspec.Struct, frozen=True, gc=False):
    """What one exchange took, for metrics and for pacing."""

    call: str
    seconds: float
    size: int
    outcome: str
    """The HTTP status, or the kind of failure."""


class Body(Protocol[AnswerT_co]):
    """Takes the bytes of an answer as they arrive."""

    def feed(self, chunk: bytes) -> None: ...

    def finish(self) -> AnswerT_co: ...


class WholeBody(Generic[AnswerT]):
    def __init__(self, decoder: msgspec.json.Decoder[AnswerT]) -> None:
        self._decoder = decoder
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._bytes += chunk

    def finish(self) -> AnswerT:
        return decode_replacing(self._decoder.decode, self._bytes)


class Reply(msgspec.Struct, Generic[AnswerT], frozen=True):
    answer: AnswerT | None
    """None if nothing changed since the time that was asked about."""
    cost: Cost


class _UnknownPath(Exception):  # noqa: N818 - never leaves this file
    """A 404 in plain text: slurmrestd has no such version, or no such path in it."""


class Rest:
    def __init__(
        self,
        url: str,
        tokens: TokenSource,
        transport: Transport,
        clock: Clock,
        *,
        deadline: float = DEADLINE,
        observe: Callable[[Cost], None] = lambda cost: None,
    ) -> None:
        self.version = ""
        self.breaker = Breaker(clock.monotonic)
        self._url = url.rstrip("/")
        self._tokens = tokens
        self._transport = transport
        self._clock = clock
        self._deadline = deadline
        self._observe = observe
        self._reads = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._writes = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._choosing = asyncio.Lock()

    def retarget(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.version = ""
        self.breaker.succeeded()

    async def close(self) -> None:
        await self._transport.close()

    async def send(self, call: Call, body: Body[AnswerT]) -> Reply[AnswerT]:
        """The decoded answer; anything but a clean success is raised.

        The deadline counts from when the call is sent: a slow slurmctld is not failing because several ask it. A poller
        has a place of its own, as it must not be late because of other calls. A write waits for other writes alone: it
        follows a read of its pass, and behind the reads of other passes it would not be sent before its pass ends.
        """
        if call.probe:
            return await self._judged(call, body)
        self.breaker.check(str(call))
        places = self._reads if call.method == "GET" else self._writes
        must_wait = places.locked()
        async with places:
            if must_wait:
                self.breaker.check(str(call))  # the calls that were waited for may have failed
            return await self._judged(call, body)

    async def _judged(self, call: Call, body: Body[AnswerT]) -> Reply[AnswerT]:
        """Send a call, and tell the breaker what became of it."""
        try:
            async with asyncio.timeout(self._deadline):
                reply = await self._with_version(call, body)
        except TimeoutError:
            late = DeadlineExceeded(str(call), f"nothing within {self._deadline:g} s")
            self.breaker.failed(late)
            raise late from None
        except SlurmError as error:
            error.call = str(call)
            self._judge(error)
            raise
        self.breaker.succeeded()
        return reply

    def _judge(self, error: SlurmError) -> None:
        if error.outage:
            self.breaker.failed(error)
        else:
            self.breaker.succeeded()
        if isinstance(error, AuthFailed):
            self._tokens.forget()

    async def _with_version(self, call: Call, body: Body[AnswerT]) -> Reply[AnswerT]:
        """A path that is unknown may mean another slurmrestd: look once more which versions it knows."""
        version = await self._choose_version()
        try:
            return await self._exchange(version, call, body)
        except _UnknownPath:
            self.version = ""
        if (chosen := await self._choose_version()) != version:
            try:
                return await self._exchange(chosen, call, body)
            except _UnknownPath:
                version = chosen
        if call.missing:
            raise NotFound(str(call), "HTTP 404", status=_NOT_FOUND)
        raise Unsupported(str(call), f"data parser {version} has no such path", status=_NOT_FOUND)

    async def _choose_version(self) -> str:
        """The newest data parser that both sides know."""
        async with self._choosing:
            for version in () if self.version else VERSIONS:
                try:
                    await self._exchange(version, Call(method="GET", path="ping/"), WholeBody(_ERRORS_ONLY))
                except _UnknownPath:
                    continue
                self.version = version
                break
            if not self.version:
                raise Unsupported("", f"it knows none of the data parsers {VERSIONS[-1]} to {VERSIONS[0]}")
            return self.version

    async def _exchange(self, version: str, call: Call, body: Body[AnswerT]) -> Reply[AnswerT]:
        headers = {"X-SLURM-USER-TOKEN": self._tokens.token(), "Accept": "application/json"}
        payload = None
        if call.body is not None:
            payload = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        meter = _Meter(call.kind, self._clock.monotonic)
        try:
            url = f"{self._url}/{call.plugin}/{version}/{call.path}"
            async with self._transport.request(call.method, url, headers, payload) as response:
                meter.outcome = str(response.status)
                answer = await self._read(call, response, body, meter)
        except SlurmError as error:
            if not error.status:
                meter.outcome = type(error).__name__
            raise
        finally:
            cost = meter.cost()
            self._observe(cost)
        return Reply(answer, cost)

    async def _read(self, call: Call, response: Response, body: Body[AnswerT], meter: "_Meter") -> AnswerT | None:
        if response.status == _NOT_MODIFIED:
            return None
        if response.status != _OK:
            raise await _refusal(call, response, meter)
        await _pour(response, body, meter)
        try:
            answer = body.finish()
        except UNREADABLE as error:
            raise Garbage(str(call), str(error), status=_OK) from error
        if answer.errors:
            raise from_answer(str(call), _OK, answer.errors, missing=call.missing, bulk=call.bulk)
        return answer


async def _pour(response: Response, body: Body[Answer], meter: "_Meter") -> None:
    async for chunk in response.chunks():
        meter.size += len(chunk)
        body.feed(chunk)


async def _refusal(call: Call, response: Response, meter: "_Meter") -> Exception:
    """Slurm explains its refusals in JSON, but for a few that the status alone explains."""
    status = response.status
    body = WholeBody(_ERRORS_ONLY)
    await _pour(response, body, meter)
    try:
        return from_answer(str(call), status, body.finish().errors, missing=call.missing, bulk=call.bulk)
    except UNREADABLE:
        if status == _NOT_FOUND:
            return _UnknownPath()
        return from_answer(str(call), status, ()) if status >= 400 else Garbage(str(call), f"HTTP {status}")


class _Meter:
    def __init__(self, kind: str, monotonic: Callable[[], float]) -> None:
        self._kind = kind
        self._monotonic = monotonic
        self._began = monotonic()
        self.size = 0
        self.outcome = "cancelled"

    def cost(self) -> Cost:
        return Cost(self._kind, self._monotonic() - self._began, self.size, self.outcome)
