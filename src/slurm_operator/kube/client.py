"""The verbs of the Kubernetes API. Projections come out, plain dictionaries go in, every call has a deadline."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, Self

import msgspec

from slurm_operator.errors import UserError
from slurm_operator.kube.auth import Credentials
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.content import decode_kinds, encode, plain, understand, unintelligible
from slurm_operator.kube.errors import (
    ApiError,
    Call,
    Gone,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_response,
)
from slurm_operator.kube.kinds import LEASES
from slurm_operator.kube.resource import Manifest, Resource, T
from slurm_operator.kube.transport import Answer, Transport, TransportError
from slurm_operator.kube.watch import Listing, WatchEvent, decode_object, decode_page, event_decoder, lines

Observer = Callable[[str, str, float], None]
"""Called once per HTTP request with method, status code ("<error>" if none came) and seconds."""

JsonPatch = list[Manifest]
PatchKind = Literal["merge", "strategic", "json"]
"""A strategic merge changes single elements of lists; the server knows it for its own kinds alone."""
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
PAGE = 500
LIST_ATTEMPTS = 3


def _nobody(method: str, code: str, seconds: float) -> None:
    """The observer of those who do not measure."""


class Client:
    def __init__(
        self, config: KubeConfig, *, observer: Observer = _nobody, clock: Clock | None = None, deadline: float = 30.0
    ) -> None:
        self.config = config
        self.streams_lists = True
        """Whether this server sends lists as watch events; the first reflector that is refused turns it off."""
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before every write but those of Leases: False if another process may lead."""
        self._observe = observer
        self._clock = clock or SystemClock()
        self._deadline = deadline
        self._credentials = Credentials(config, self._clock)
        self._open: Transport | None = None
        self._chain = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._open:
            await self._open.close()
            self._open = None

    # Reading

    async def get(self, res: Resource[T], name: str, namespace: str | None = None) -> T:
        return await self._object(res, Call.on(res, "get", namespace, name), "GET", res.path(namespace, name))

    async def get_raw(self, res: Resource[T], name: str, namespace: str | None = None) -> Manifest:
        call = Call.on(res, "get", namespace, name)
        return plain(call, await self._send(call, "GET", res.path(namespace, name)))

    async def list(
        self, res: Resource[T], namespace: str | None = None, *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> Listing[T]:
        """All of them; if the listing grows too old between two pages it starts over."""
        for attempts_left in reversed(range(LIST_ATTEMPTS)):
            whole: Listing[T] = Listing([], "")
            try:
                async for page in self.pages(res, namespace, labels=labels, fields=fields, limit=limit):
                    whole = Listing(whole.items + page.items, page.resource_version, whole.unreadable + page.unreadable)
                break
            except Gone:
                if not attempts_left:
                    raise
        return whole

    async def pages(
        self, res: Resource[T], namespace: str | None = None, *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Listing[T], None]:
        """Page by page, so that decoding a big list never holds the event loop for long."""
        params = _selected(labels, fields) | {"limit": str(limit)}
        call, path = Call.on(res, "list", namespace), res.path(namespace)
        while True:
            page = understand(call, partial(decode_page, res.type), await self._send(call, "GET", path, params=params))
            yield page
            if not page.continue_:
                return
            params["continue"] = page.continue_

    async def watch(
        self,
        res: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_events: bool = False,
        server_seconds: int = 300,
        inactivity: float = 120.0,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Events until the server ends the stream; close the iterator to hang up.

        `initial_events` asks for the present state first, closed by a bookmark that says so.
        """
        params = _selected(labels, fields) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(server_seconds),
            "resourceVersion": resource_version,
        }
        if initial_events:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        call, path, decode = Call.on(res, "watch", namespace), res.path(namespace), event_decoder(res.type)
        headers, started, code = await self._headers(call), time.perf_counter(), "<error>"
        try:
            async with self._transport().stream(path, params, headers, inactivity) as stream:
                code = str(stream.status)
                self._observe("GET", code, time.perf_counter() - started)
                if stream.status >= 400:
                    body = b"".join([chunk async for chunk in stream.chunks])
                    raise self._refusal(call, Answer(stream.status, stream.headers, body))
                on_open()
                async for line in lines(stream.chunks):
                    yield decode(line)
        except TransportError as error:
            if code == "<error>":
                self._observe("GET", code, time.perf_counter() - started)
            raise Unreachable(call, error.message, error.hint) from error
        except msgspec.DecodeError as error:
            raise unintelligible(call, error) from error

    async def log(self, res: Resource[T], name: str, namespace: str, *, container: str, lines: int, limit: int) -> str:
        """Return the last lines that a container of a pod wrote, of these at most `limit` bytes."""
        call, path = Call.on(res, "get", namespace, name, "log"), res.path(namespace, name, "log")
        params = {"container": container, "tailLines": str(lines), "limitBytes": str(limit)}
        found = await self._send(call, "GET", path, params=params)
        return found.decode(errors="replace")

    async def version(self) -> str:
        """The server's own version; also the quickest way to learn whether we can talk to it at all."""
        call = Call("get", "/version", "version")
        return str(plain(call, await self._send(call, "GET", "/version")).get("gitVersion"))

    async def kinds(self, api_version: str) -> dict[str, tuple[str, bool]]:
        """What the server offers in a group's version: plural and whether it is namespaced, by kind."""
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        call = Call("get", api_version, "kinds")
        answer = understand(call, decode_kinds, await self._send(call, "GET", path))
        found = (entry for entry in answer.resources or () if "/" not in entry.name)
        return {entry.kind: (entry.name, entry.namespaced) for entry in found}

    async def passed_on(self, path: str, headers: Mapping[str, str]) -> Answer:
        """What a pod answers to a GET that the API server passes on to it, refusals included."""
        call = Call("get", "services", "Service", subresource="proxy")
        try:
            return await self._transport().request("GET", path, {}, {**headers, **await self._headers(call)}, None)
        except TransportError as error:
            raise Unreachable(call, error.message, error.hint) from error

    # Writing

    async def create(self, res: Resource[T], manifest: Manifest, *, dry_run: bool = False) -> T:
        namespace, name = _address(manifest)
        return await self._object(
            res,
            Call.on(res, "create", namespace, name),
            "POST",
            res.path(namespace),
            params=_dry(dry_run),
            body=manifest,
            idempotent=False,
        )

    async def apply(
        self,
        res: Resource[T],
        manifest: Manifest,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: these fields, and no others, are ours to decide."""
        call, path, options = _applied(res, manifest, manager, subresource)
        options["params"] |= _dry(dry_run) | {"force": "true" if force else "false"}
        return await self._object(res, call, "PATCH", path, **options)

    async def apply_new(self, res: Resource[T], manifest: Manifest, *, manager: str) -> tuple[T, bool]:
        """Apply without force what should not exist; returns the object and whether this call created it.

        It is sent once, as a second try would find what the first has made.
        """
        call, path, options = _applied(res, manifest, manager)
        answer = await self._exchange(call, "PATCH", path, **options, idempotent=False)
        return understand(call, partial(decode_object, res.type), answer.body), answer.status == HTTPStatus.CREATED

    async def patch(
        self,
        res: Resource[T],
        name: str,
        patch: Manifest | JsonPatch,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        return await self._object(
            res,
            Call.on(res, "patch", namespace, name, subresource),
            "PATCH",
            res.path(namespace, name, subresource),
            params=_dry(dry_run),
            body=patch,
            content_type=_PATCH_TYPES[kind],
            idempotent=kind != "json",
        )

    async def delete(
        self,
        res: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
        dry_run: bool = False,
    ) -> None:
        """With `uid` or `resource_version`: only if the object is still that one, else Conflict."""
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if uid or resource_version:
            options["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        await self._send(Call.on(res, "delete", namespace, name), "DELETE", res.path(namespace, name), body=options)

    async def post_subresource(
        self, res: Resource[T], name: str, namespace: str | None, subresource: str, body: Manifest
    ) -> Manifest:
        call = Call.on(res, "create", namespace, name, subresource)
        answer = await self._send(
            call,
            "POST",
            res.path(namespace, name, subresource),
            body=body,
            idempotent=False,
            # An eviction answers 429 for as long as a disruption budget forbids it: that is news, not load.
            wait_when_told=subresource != "eviction",
        )
        return plain(call, answer)

    # Sending

    async def _object(self, res: Resource[T], call: Call, method: str, path: str, **options: Any) -> T:
        return understand(call, partial(decode_object, res.type), await self._send(call, method, path, **options))

    async def _send(self, call: Call, method: str, path: str, **options: Any) -> bytes:
        return (await self._exchange(call, method, path, **options)).body

    async def _exchange(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        idempotent: bool = True,
        wait_when_told: bool = True,
    ) -> Answer:
        content = None if body is None else encode(body)
        extra = {} if content is None else {"Content-Type": content_type}
        attempt = 0
        broken = False
        try:
            async with asyncio.timeout(self._deadline) as limit:
                while True:
                    try:
                        headers = await self._headers(call) | extra
                        self._refuse_without_lease(call, method)
                        return await self._once(call, method, path, params or {}, headers, content)
                    except Unauthorized:
                        # The token may have been rotated under us: once more with fresh credentials.
                        if attempt:
                            raise
                    except (TooManyRequests, ServerError) as error:
                        if not wait_when_told or not _worth_waiting(error, idempotent):
                            raise
                        await self._pause(error, attempt, limit)
                    except Unreachable:
                        if broken or not idempotent:
                            raise
                        broken = True
                    attempt += 1
        except TimeoutError:
            raise Unreachable(call, f"no answer from {self.config.server} within {self._deadline:g} s") from None

    def _refuse_without_lease(self, call: Call, method: str) -> None:
        if method != "GET" and call.resource != LEASES.label and not self.may_write():
            raise NotLeading(call, "the lease was not renewed in time, another process may lead")

    async def _once(
        self,
        call: Call,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        content: bytes | None,
    ) -> Answer:
        started, code = time.perf_counter(), "<error>"
        try:
            answer = await self._transport().request(method, path, params, headers, content)
            code = str(answer.status)
        except TransportError as error:
            raise Unreachable(call, error.message, error.hint) from error
        finally:
            self._observe(method, code, time.perf_counter() - started)
        if answer.status >= 400:
            raise self._refusal(call, answer)
        return answer

    async def _pause(self, error: ApiError, attempt: int, limit: asyncio.Timeout) -> None:
        wait = (error.retry_after or min(0.1 * 2**attempt, 5.0)) * random.uniform(1.0, 1.25)
        end = limit.when()
        if end is not None and asyncio.get_running_loop().time() + wait >= end:
            raise error
        await self._clock.sleep(wait)

    def _refusal(self, call: Call, answer: Answer) -> ApiError:
        error = from_response(call, answer.status, answer.headers, answer.body)
        if isinstance(error, Unauthorized):
            self._credentials.distrust()
        return error

    async def _headers(self, call: Call) -> dict[str, str]:
        try:
            value = await self._credentials.header()
        except UserError as error:
            raise Unreachable(call, error.message, error.hint) from error
        return {"Authorization": value} if value else {}

    def _transport(self) -> Transport:
        if self._open is None:
            self._open = Transport(self.config, self._credentials.ssl)
        elif self._chain != self._credentials.chain:
            self._open.renew()
        self._chain = self._credentials.chain
        return self._open


def _applied(
    res: Resource[T], manifest: Manifest, manager: str, subresource: str = ""
) -> tuple[Call, str, dict[str, Any]]:
    namespace, name = _address(manifest)
    call = Call.on(res, "patch", namespace, name, subresource)
    body = {"apiVersion": res.api_version, "kind": res.kind} | manifest
    options = {"params": {"fieldManager": manager}, "body": body, "content_type": _PATCH_TYPES["apply"]}
    return call, res.path(namespace, name, subresource), options


def _worth_waiting(error: ApiError, idempotent: bool) -> bool:
    return error.status == 429 or (idempotent and error.status == 503)


def _address(manifest: Manifest) -> tuple[str | None, str]:
    if not isinstance(manifest, dict):
        raise TypeError(f"a manifest is a plain dictionary, not {type(manifest).__name__}")
    meta = manifest["metadata"]
    return meta.get("namespace"), meta.get("name", "")


def _selected(labels: str, fields: str) -> dict[str, str]:
    wanted = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in wanted.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
