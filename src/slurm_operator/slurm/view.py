"""The live view of one cluster: a poller that knows the truth about Slurm within seconds and asks for almost nothing.

Two loops: one reads all nodes (slurmctld answers "nothing changed" for a millisecond of work, or sends every node),
one reads single nodes that somebody waits for when whole lists are too dear to come often.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress

from slurm_operator.slurm.client import Listing, NotChanged, SlurmClient
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.errors import HalfApplied, NotFound, SlurmError
from slurm_operator.slurm.jobs import JobList, JobListReader
from slurm_operator.slurm.known import Change, Known, State, Subscriber
from slurm_operator.slurm.ledger import Began, Ledger, ListRead
from slurm_operator.slurm.model import Node, NodeUpdate
from slurm_operator.slurm.pace import Pace
from slurm_operator.slurm.transport import MOST_IN_FLIGHT

log = logging.getLogger(__name__)

_SINGLES_AT_ONCE = 16
JOBS_MAX_AGE_SECONDS = 30.0
"""Age that a watched list of jobs reaches before it is read again."""
_SINGLES_SECONDS = 2.0
"""Seconds after which one list is quicker than nodes that are read singly and still wait for their turn."""
_LISTS_SUFFICE_BELOW = 1.5
"""Seconds: while lists may come this often, reading single nodes gains nothing."""


class SlurmView:
    def __init__(self, client: SlurmClient, clock: Clock, pace: Pace | None = None) -> None:
        self._client = client
        self._clock = clock
        self._pace = pace or Pace()
        self._ledger = Ledger(clock, self._pace.settle)
        self._jobs = JobListReader(client, clock, self._pace)
        self._subscribers: list[Subscriber] = []
        self._watched: dict[Hashable, frozenset[str]] = {}
        self._recheck: set[str] = set()
        self._hurry = asyncio.Event()
        self._wanted = asyncio.Event()
        self._jobs_wanted: set[Hashable] = set()
        self._jobs_asked = asyncio.Event()
        self._last_update = 0
        self._misled = False
        """The next list must be whole: slurmctld may say "nothing changed" although something did."""
        self._failures = 0
        self._list_period = 0.0
        self._list_price = 0.0
        self._check_at = 0.0
        self._boot = 0
        self._lists = self._pace.for_lists(clock.monotonic)
        self._singles = self._pace.for_singles(clock.monotonic)

    # --- what consumers see ---------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._ledger.state

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be called for every change, inside the poller: only to enqueue work. Returns how to stop it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def watch_nodes(self, owner: Hashable, names: Collection[str]) -> None:
        """Somebody waits for these few nodes: keep them fresh. Replaces what this owner watched before."""
        if names:
            self._watched[owner] = frozenset(names)
            self._wanted.set()
        else:
            self._watched.pop(owner, None)

    @property
    def watched(self) -> frozenset[str]:
        """Nodes that at least one owner waits for."""
        return frozenset().union(*self._watched.values())

    async def read_jobs(self, max_age: float, patience: float | None = None) -> JobList:
        """Return all jobs and reservations, read at most `max_age` seconds ago. Costly: 8 kB a job.

        With `patience`, raise SlurmError after so many seconds; the read goes on in the background.
        """
        return await self._jobs.read(max_age, self._ledger.epoch, patience)

    @property
    def jobs(self) -> JobList | None:
        """The last list of jobs and reservations of this slurmctld, however old."""
        return self._jobs.last(self._ledger.epoch)

    def watch_jobs(self, owner: Hashable, wanted: bool) -> None:
        """Keep the list of jobs fresh while at least one owner wants it."""
        if wanted and owner not in self._jobs_wanted:
            self._jobs_wanted.add(owner)
            self._jobs_asked.set()
        elif not wanted:
            self._jobs_wanted.discard(owner)

    # --- writes ---------------------------------------------------------------------------------------------------

    async def look(self, names: Collection[str]) -> dict[str, Node]:
        """Return these nodes as they are right now, for a last check before a write; a missing record is left out.

        A few are read singly, many by one list.
        """
        found = await self._look_at_each(names) if len(names) <= _SINGLES_AT_ONCE else None
        if found is None:
            found = await self._look_at_list(names)
        if any(self._shows(name) for name in names if name not in found):
            self._read_whole_list()
        return found

    async def _look_at_list(self, names: Collection[str]) -> dict[str, Node]:
        found: list[Node] = []
        await self._client.nodes(found.extend)
        return {node.name: node for node in found if node.name in names}

    async def _look_at_each(self, names: Collection[str]) -> dict[str, Node] | None:
        """Return nothing if slurmctld is too slow to read them in several rounds."""
        looks = [asyncio.ensure_future(self._read_node(name)) for name in names]
        try:
            if looks:
                await asyncio.wait(looks, timeout=_SINGLES_SECONDS if len(looks) > MOST_IN_FLIGHT else None)
            if not all(look.done() for look in looks):
                return None
            found = [look.result() for look in looks]
        finally:
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
        return {look.name: look for look in found if look is not None}

    async def drain(self, names: Collection[str], reason: str) -> None:
        await self.update(names, NodeUpdate(state=("DRAIN",), reason=reason))

    async def undrain(self, names: Collection[str], reason: str = "") -> None:
        await self.update(names, NodeUpdate(state=("UNDRAIN",), reason=reason))

    async def update(self, names: Collection[str], update: NodeUpdate) -> None:
        """Change any number of nodes by one request; what we wrote counts as seen until the next read."""
        if not names:
            return
        try:
            await self._client.update_nodes(names, update)
        except (NotFound, HalfApplied):
            self._read_whole_list()
            raise
        finally:
            self._read_soon(names)
        self._ledger.wrote(names, update)

    async def delete(self, names: Collection[str]) -> None:
        if not names:
            return
        try:
            await self._client.delete_nodes(names)
        except BaseException:  # a refusal for one record does not tell of the others
            self._ledger.unanswered(names)
            raise
        finally:
            self._read_whole_list()
        self._ledger.wrote(names, None)

    def set_key(self, key: bytes) -> None:
        if self._client.set_key(key):
            self._hurry.set()

    def set_url(self, url: str) -> None:
        self._client.set_url(url)
        self._last_update = 0
        self._notify(self._ledger.restart("the address of slurmrestd changed and it has not been read yet"))
        self._hurry.set()

    def _shows(self, name: str) -> bool:
        return isinstance(self.state, Known) and name in self.state.nodes

    def _read_whole_list(self) -> None:
        """Read all nodes soon: slurmctld does not count the deletion of its last records as a change.

        A list that is under way may be older than what gave rise to this.
        """
        self._misled = True
        self._hurry.set()

    def _read_soon(self, names: Collection[str]) -> None:
        if self._singles_pay and len(names) <= _SINGLES_AT_ONCE:
            self._recheck.update(names)
            self._wanted.set()
        else:
            self._hurry.set()

    # --- the poller -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_lists())
                group.create_task(self._read_singles())
                group.create_task(self._keep_jobs())
        finally:
            await self._jobs.close()

    def crashed(self, why: str) -> None:
        """The poller itself failed: say so rather than show old news as new."""
        self._last_update = 0
        self._notify(self._ledger.doubted(why))

    async def _read_lists(self) -> None:
        while True:
            self._hurry.clear()
            pause = await self._read_list()
            await _sleep(self._lists.wait(), max(pause, self._lists.wait(reserve=0.5)), self._hurry)

    async def _read_list(self) -> float:
        """Returns the pause to make if nobody is in a hurry."""
        read = self._ledger.begin_list()
        whole = self._misled or self._ledger.has_pending or self._is_check_due(cheap=True)
        self._misled = False
        try:
            listing = await self._client.nodes(read.add, 0 if whole else self._last_update, probe=True)
            boot = await self._boot_behind(listing)
        except SlurmError as error:
            self._misled |= whole
            self._failures += 1
            if self._ledger.is_current(read.began):
                self._notify(self._ledger.failed(error))
            return self._pace.after_failure(self._failures)
        self._failures = 0
        if not self._ledger.is_current(read.began):
            return 0.0
        if isinstance(listing, NotChanged):
            self._notify(self._ledger.took_no_change(read))
            return self._pace.quiet
        self._list_price = self._pace.price(listing.cost)
        self._lists.spend(self._list_price)
        self._list_period = self._pace.period(self._list_price)
        self._take_list(read, boot, listing.last_update)
        return self._pace.quiet

    def _take_list(self, read: ListRead, boot: int, last_update: int) -> None:
        """A list from before the start that was told after it may be of the slurmctld before: not believed once."""
        if boot and (boot <= last_update or boot == self._boot):
            self._last_update = last_update
            self._notify(self._ledger.took_list(read, boot))
        else:
            self._last_update = 0
            self._notify(self._ledger.doubted("slurmctld is just starting"))
        self._boot = boot

    def _is_check_due(self, *, cheap: bool = False) -> bool:
        """Return whether "nothing changed" is to be doubted; with `cheap`, only if a whole list costs little."""
        return self._clock.monotonic() >= self._check_at and not (cheap and self._list_price > self._pace.cheap_list)

    async def _boot_behind(self, listing: Listing[Node] | NotChanged) -> int:
        """When the slurmctld behind an answer started; also sees to it that its clock has not gone back.

        If it has, "nothing changed since" would be true of everything that happens until the old time is reached.
        """
        if isinstance(listing, NotChanged) and not self._is_check_due():
            return 0
        statistics = await self._client.diag(probe=True)
        self._check_at = self._clock.monotonic() + self._pace.check
        if isinstance(listing, NotChanged) and statistics.now < self._last_update:
            self._last_update = 0
        return statistics.counting_since

    async def _keep_jobs(self) -> None:
        while True:
            self._jobs_asked.clear()
            if self._jobs_wanted:
                before = self.jobs
                with suppress(SlurmError):  # the next try follows; readers see how old the last list is
                    await self.read_jobs(JOBS_MAX_AGE_SECONDS / 2)
                if self.jobs is not before:
                    self._notify(Change(frozenset(), self.state, self.state, jobs=True))
            await _sleep(self._pace.quiet, JOBS_MAX_AGE_SECONDS if self._jobs_wanted else None, self._jobs_asked)

    @property
    def _singles_pay(self) -> bool:
        return self._list_period > _LISTS_SUFFICE_BELOW

    async def _read_singles(self) -> None:
        turn = 0
        while True:
            self._wanted.clear()
            names = self._wanted_singles(turn)
            if not names:
                await self._wait_for_singles()
                continue
            turn += len(names)
            began = self._clock.monotonic()
            await self._read_nodes(names)
            self._singles.spend(self._clock.monotonic() - began)
            await _sleep(self._singles.wait(), self._pace.quiet, self._wanted)

    async def _wait_for_singles(self) -> None:
        """Until somebody asks; with watched nodes, until lists have become too dear for them."""
        await _sleep(0.0, self._pace.quiet if self._watched else None, self._wanted)

    def _wanted_singles(self, turn: int) -> list[str]:
        """Nodes just written to, then the watched ones in turn."""
        if not self._singles_pay:
            self._recheck.clear()
            return []
        names = list(self._recheck)[:_SINGLES_AT_ONCE]
        self._recheck.difference_update(names)
        watched = sorted(self.watched)
        start = turn % len(watched) if watched else 0
        names += [name for name in watched[start:] + watched[:start] if name not in names]
        return names[:_SINGLES_AT_ONCE]

    async def _read_nodes(self, names: Collection[str]) -> None:
        reads: dict[str, tuple[Began, Node | None]] = {}
        try:
            await self._client.recount()
            for name in names:
                began, node = self._ledger.begin(), await self._read_node(name)
                if node is None and self._shows(name):
                    self._read_whole_list()  # which also tells whether slurmctld lost its state
                else:
                    reads[name] = began, node
        except SlurmError:
            self._hurry.set()
        self._notify(self._ledger.took_nodes(reads))

    async def _read_node(self, name: str) -> Node | None:
        try:
            return await self._client.node(name)
        except NotFound:
            return None

    def _notify(self, change: Change | None) -> None:
        if change is None:
            return
        for subscriber in list(self._subscribers):
            try:
                subscriber(change)
            except Exception:  # one consumer's mistake must not blind the others
                log.exception("a subscriber of the Slurm view failed")


async def _sleep(rest: float, pause: float | None, woken: asyncio.Event) -> None:
    """Sleep for `rest` in any case, and until `pause` has passed unless woken."""
    await asyncio.sleep(rest)
    with suppress(TimeoutError):
        async with asyncio.timeout(None if pause is None else max(0.0, pause - rest)):
            await woken.wait()
