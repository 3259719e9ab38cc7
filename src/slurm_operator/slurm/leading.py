"""Writes to Slurm by the leader alone."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from slurm_operator.slurm.errors import NotLeading
from slurm_operator.slurm.transport import Response, Transport


class LeadingTransport:
    """Passes requests on, and refuses writes once the process may no longer lead."""

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> AbstractAsyncContextManager[Response]:
        if method != "GET" and not self._may_write():
            raise NotLeading(f"{method} {url}")
        return self._inner.request(method, url, headers, body)

    async def close(self) -> None:
        await self._inner.close()
