"""Jobs that must end undisturbed: COMPLETED, on the nodes they started on, and started only once."""

from contextlib import suppress
from typing import NamedTuple

from slurm_operator.errors import UserError
from slurm_operator.slurm.hostlist import expand
from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually

UNTIL_RELEASED = "until [ -e /home/release-$SLURM_JOB_ID ]; do sleep 0.3; done"
"""Script of a job that ends by itself when the test releases it. Its worker mounts /home."""

_ACTIVE = ("CONFIGURING", "COMPLETING", "PENDING", "REQUEUED", "RESIZING", "RUNNING", "STAGE_OUT", "SUSPENDED")
_WELL = ("COMPLETED", "COMPLETING", "PENDING", "RUNNING")


class Record(NamedTuple):
    """One start of a job."""

    state: str
    nodes: str


class Job:
    """A job that a test neither cancels, holds nor has preempted."""

    def __init__(self, slurm: Slurm, number: str) -> None:
        self.number = number
        self.nodes = ""
        """Nodes on which the job was first seen RUNNING."""
        self._slurm = slurm

    def __str__(self) -> str:
        return self.number

    @property
    def state(self) -> str:
        return self._slurm.job_state(self.number)

    def wait_running(self, timeout: float = 60) -> "Job":
        """Wait until the job runs, and remember on which nodes."""
        self._slurm.wait_job(self.number, "RUNNING", timeout=timeout)
        self.nodes = self._where()
        assert self.nodes, f"job {self.number} runs on no node"
        return self

    def release(self) -> None:
        """Let the job end by itself."""
        self._slurm.login("touch", f"/home/release-{self.number}")

    def finish(self, timeout: float = 60) -> None:
        """Release the job and check that it ends undisturbed."""
        self.release()
        self.assert_undisturbed(timeout)

    def assert_running(self) -> None:
        assert self.state == "RUNNING", f"job {self.number}"
        assert self._where() == self.nodes, f"job {self.number}"

    def _where(self) -> str:
        return in_order(self._slurm.login("squeue", "-h", "-j", self.number, "-o", "%N"))

    def assert_undisturbed(self, timeout: float = 60) -> None:
        """Wait until the job has ended; it is COMPLETED on its original nodes and was started once."""
        found: list[Record] = []

        def ended() -> bool:
            with suppress(UserError):  # a daemon that restarts does not answer
                found[:] = records(self._slurm, self.number)
            return bool(found) and found[-1].state not in _ACTIVE

        eventually(f"job {self.number} has ended", ended, timeout, pause=0.5)
        assert found == [Record("COMPLETED", self.nodes)], f"job {self.number}"


def start_job(slurm: Slurm, *options: str, wrap: str = UNTIL_RELEASED, timeout: float = 60) -> Job:
    """Submit a job and wait until it runs."""
    return Job(slurm, slurm.submit(*options, wrap=wrap)).wait_running(timeout)


def run_job(slurm: Slurm, *options: str, wrap: str) -> Job:
    """Submit a short job, wait for its end and check that it was undisturbed on whatever nodes it got."""
    job = Job(slurm, slurm.login("sbatch", "--parsable", "--wait", "-o", "/dev/null", *options, "--wrap", wrap))
    eventually(f"job {job} has a record", lambda: bool(records(slurm, job.number)), timeout=30)
    job.nodes = records(slurm, job.number)[0].nodes
    job.assert_undisturbed()
    return job


def in_order(nodes: str) -> str:
    """Return a node list with every node by its name: the accounting orders them otherwise than slurmctld."""
    return nodes if nodes in ("", "None assigned", "(null)") else ",".join(sorted(expand(nodes)))


def records(slurm: Slurm, number: str) -> list[Record]:
    """Every start of a job: from the accounting, or from slurmctld in a cluster that has none."""
    if slurm.has_accounting:
        rows = slurm.login("sacct", "-D", "-X", "-n", "-P", "-j", number, "-o", "State,NodeList")
        return [Record(state, in_order(nodes)) for state, nodes in (row.split("|") for row in rows.splitlines())]
    words = slurm.login("scontrol", "--oneliner", "show", "job", number).split()
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    last = Record(fields["JobState"], in_order(fields["NodeList"]))
    return [Record("REQUEUED", "")] * int(fields["Restarts"]) + [last]


EXPENDABLE = "expendable"
"""Name of jobs that a test lets fail."""


def disturbed(slurm: Slurm) -> dict[str, list[str]]:
    """Return the starts of each job that was not COMPLETED at the first, unless the test excused the job."""
    query = ("sacct", "-a", "-D", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobIDRaw,JobID,JobName,State,NodeList")
    found: dict[str, list[str]] = {}
    for raw, number, name, state, nodes in (row.split("|") for row in slurm.login(*query).splitlines()):
        if name != EXPENDABLE and not {raw, number.partition("_")[0]} & slurm.excused:
            found.setdefault(raw, []).append(f"{state} {nodes}".strip())
    return {raw: starts for raw, starts in found.items() if len(starts) > 1 or starts[0].split()[0] not in _WELL}
