"""The slurmrestd of a cluster, for a user who reaches the Kubernetes API only: it passes questions on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from slurm_operator.api import Controller, RestApi, names
from slurm_operator.cluster import choose_restapi
from slurm_operator.kube import ApiError, Client
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.custom import CONTROLLERS, RESTAPIS
from slurm_operator.kube.kinds import SECRETS
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.errors import Unreachable
from slurm_operator.slurm.jobs import is_unfinished
from slurm_operator.slurm.model import Job, Node

DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What Slurm says about the work on a cluster's nodes."""

    jobs: list[Job]
    """Those that hold nodes."""
    states: dict[str, tuple[str, ...]]
    """Of every node that Slurm knows."""


async def occupancy(client: Client, namespace: str, controller: str) -> Occupancy:
    """Ask Slurm which work is on which node; raise SlurmError or ApiError if it cannot be asked."""
    found = await client.get(CONTROLLERS, controller, namespace)
    candidates = (await client.list(RESTAPIS, namespace)).items
    restapi = choose_restapi(candidate for candidate in candidates if candidate.spec.controller_ref.name == controller)
    if restapi is None:
        raise Unreachable(f"Controller {namespace}/{controller}", "no RestApi refers to it")
    jobs: list[Job] = []
    nodes: list[Node] = []
    async with slurm_of(client, found, restapi) as slurm:
        await slurm.nodes(nodes.extend)
        await slurm.jobs(jobs.extend)
    holding = [job for job in jobs if job.nodes and is_unfinished(job)]
    return Occupancy(holding, {node.name: node.state for node in nodes})


@asynccontextmanager
async def slurm_of(client: Client, controller: Controller, restapi: RestApi) -> AsyncIterator[SlurmClient]:
    """The slurmrestd of a cluster, asked through the API server."""
    ref, namespace = controller.spec.jwt_key, controller.metadata.namespace
    key = (await client.get(SECRETS, ref.name, namespace)).data.get(ref.key, b"") if ref is not None else b""
    service = f"http:{names.restapi(restapi.metadata.name)}:{restapi.spec.service.port or names.PORT_SLURMRESTD}"
    url = f"/api/v1/namespaces/{namespace}/services/{service}/proxy"
    async with SlurmClient(url, key, SystemClock(), transport=PassedOn(client), deadline=DEADLINE) as slurm:
        yield slurm


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body


class PassedOn:
    """Reads of slurmrestd through the API server. A URL is a path there."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> AsyncIterator[_Answer]:
        if method != "GET" or body is not None:
            raise ValueError("only reads are passed on")
        try:
            answer = await self._client.passed_on(url, headers)
        except ApiError as error:
            raise Unreachable(url, str(error)) from error
        yield _Answer(answer.status, answer.body)

    async def close(self) -> None:
        """The connection is the client's."""
