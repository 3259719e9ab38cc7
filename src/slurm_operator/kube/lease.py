"""Leadership by Lease, with client-go's timing: at most one process holds it, and one that loses it must end.

Only this process's own monotonic clock is trusted: a holder counts as dead when its record did not change for the
whole lease, measured from when we saw it.
"""

import asyncio
import logging
import random
from dataclasses import dataclass

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock, timestamp
from slurm_operator.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from slurm_operator.kube.kinds import LEASES, Lease, LeaseSpec
from slurm_operator.kube.resource import Manifest

log = logging.getLogger(__name__)


class LeadershipLost(Exception):  # noqa: N818 - it ends the process, and is no bug
    """Somebody else may be leading: nothing may be written any more."""


@dataclass(frozen=True, slots=True)
class Timing:
    lease_seconds: int = 15
    renew_seconds: float = 10.0
    """How long renewals may fail before leadership is given up; less than the lease, so that no two ever lead."""
    retry_seconds: float = 2.0


class Elector:
    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        clock: Clock | None = None,
    ) -> None:
        self.leading = asyncio.Event()
        self.identity = identity
        self.holder = ""
        """Who leads, as far as we know."""
        self._client = client
        self._namespace = namespace
        self.name = name
        self._timing = timing
        self._clock = clock or SystemClock()
        self._lease: Lease | None = None
        self._seen = LeaseSpec()
        self._seen_at = self._renewed_at = self._clock.monotonic()

    async def run(self) -> None:
        """Wait for leadership, set `leading`, keep it. Raises LeadershipLost; gives it back when cancelled."""
        while not await self._try():
            await self._clock.sleep(self._timing.retry_seconds * random.uniform(1.0, 1.2))
        log.info("leading", extra={"lease": self.name, "identity": self.identity})
        self.leading.set()
        try:
            await self._keep()
        except asyncio.CancelledError:
            await self._release()
            raise
        finally:
            self.leading.clear()

    def may_write(self) -> bool:
        """Whether the lease is held now; a process that was paused finds it run out before its timers do."""
        return self.leading.is_set() and self._time_left() > 0

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(min(self._timing.retry_seconds, max(self._time_left(), 0.0)))
            left = self._time_left()
            if left <= 0:
                raise LeadershipLost(f"lease {self.name!r} not renewed for {self._timing.renew_seconds:g} s")
            try:
                # Half of the time, so that a request lost on a dead connection leaves room for another.
                async with asyncio.timeout(min(left, self._timing.renew_seconds / 2)):
                    await self._try()
            except TimeoutError:
                log.warning("lease not renewed", extra={"lease": self.name, "error": "no answer in time"})
            if self.holder != self.identity:
                raise LeadershipLost(f"lease {self.name!r} was taken by {self.holder!r}")

    def _time_left(self) -> float:
        return self._renewed_at + self._timing.renew_seconds - self._clock.monotonic()

    async def _try(self) -> bool:
        """Take or renew the lease; False if it is another's or the server does not answer."""
        try:
            try:
                return await self._take()
            except (Conflict, AlreadyExists, NotFound):
                # Another process wrote, or our own renewal arrived although its answer did not: look again at once,
                # because the time left may not last until the next try.
                self._lease = None
                return await self._take()
        except (Conflict, AlreadyExists, NotFound):
            self._lease = None
            return False
        except ApiError as error:
            if isinstance(error, Forbidden) and not self.leading.is_set():
                raise
            log.warning("lease not renewed", extra={"lease": self.name, "error": error.message})
            return False

    async def _take(self) -> bool:
        """Write the lease if it is ours or free; False if another process holds it."""
        started = self._clock.monotonic()
        if self._lease is None or self.holder != self.identity:
            await self._look()
        if self._lease is None:
            self._saw(await self._client.create(LEASES, self._manifest()))
        elif self._may_take(self._lease.spec):
            self._saw(await self._write(self._lease, self._record(self._lease.spec)))
        else:
            return False
        # Counted from when we asked, not from when the answer came: the others count no later.
        self._renewed_at = started
        return True

    async def _look(self) -> None:
        try:
            self._saw(await self._client.get(LEASES, self.name, self._namespace))
        except NotFound:
            self._lease, self.holder = None, ""

    def _saw(self, lease: Lease) -> None:
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, self._clock.monotonic()
        self._lease, self.holder = lease, lease.spec.holder_identity

    def _may_take(self, spec: LeaseSpec) -> bool:
        expired = self._clock.monotonic() >= self._seen_at + spec.lease_duration_seconds
        return spec.holder_identity in ("", self.identity) or expired

    def _record(self, old: LeaseSpec) -> Manifest:
        now = timestamp(self._clock.now())
        record: Manifest = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timing.lease_seconds,
            "renewTime": now,
        }
        if old.holder_identity != self.identity:
            record |= {"acquireTime": now, "leaseTransitions": old.lease_transitions + 1}
        return record

    def _manifest(self) -> Manifest:
        spec = self._record(LeaseSpec()) | {"leaseTransitions": 0}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": spec,
        }

    async def _write(self, lease: Lease, spec: Manifest) -> Lease:
        """Refused with Conflict if anyone wrote since we looked."""
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return await self._client.patch(LEASES, self.name, patch, self._namespace)

    async def _release(self) -> None:
        """Let a successor start at once instead of after the whole lease."""
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": timestamp(self._clock.now())}
        try:
            async with asyncio.timeout(self._timing.retry_seconds):
                # A renewal may have been under way when we were cancelled: its answer is lost, its effect is not.
                await self._look()
                if self._lease is not None and self.holder == self.identity:
                    await self._write(self._lease, spec)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released, it will expire", extra={"lease": self.name, "error": str(error)})
