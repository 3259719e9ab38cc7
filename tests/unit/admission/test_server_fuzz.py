"""Anything at all may be posted: each gets an answer, no refusal is without a place.

`FUZZ_CASES=1000000 pytest tests/unit/admission/test_server_fuzz.py` looks longer.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.admission.binding import PATH, Binder
from slurm_operator.admission.review import Answer, answer
from slurm_operator.admission.reviewer import Reviewer, default_path, validate_path
from slurm_operator.api import KINDS, Kind, Object
from slurm_operator.kube import Client, NotFound, Resource
from slurm_operator.kube.errors import Call
from tests.unit.admission.cases import CASES
from tests.unit.admission.conftest import review
from tests.unit.admission.examples import Manifest
from tests.unit.admission.fuzz import JUNK, broken, whole

CASES_PER_TEST = int(os.environ.get("FUZZ_CASES", "10000")) // (2 * len(KINDS) + 2)


class Empty(Client):
    """A cluster in which nothing exists."""

    def __init__(self) -> None:
        """There is nothing to connect to."""

    async def get(self, res: Resource[Any], name: str, namespace: str | None = None) -> Any:
        raise NotFound(Call.on(res, "get", namespace, name), "not found")


Post: TypeAlias = Callable[[str, bytes], Answer]


@pytest.fixture
def post() -> Iterator[Post]:
    """Answers what is posted to a path; one event loop for all of a test's cases."""
    client = Empty()
    routes = Reviewer(client).routes() | {PATH: Binder(client).bound}
    with asyncio.Runner() as runner:
        yield lambda path, body: runner.run(answer(body, routes[path]))


def check(found: Answer) -> None:
    """What must hold for any answer at all."""
    assert found.status in (200, 400), found.body
    assert b"Traceback" not in found.body
    if found.status == 400:
        assert found.body.strip()
        return
    response = msgspec.json.decode(found.body)["response"]
    assert response["uid"]
    if not response["allowed"]:
        causes = response["status"]["details"]["causes"]
        assert causes
        assert all(cause["field"] and cause["message"] for cause in causes)
        assert response["status"]["message"]
    assert all(isinstance(warning, str) and "\n" not in warning for warning in response.get("warnings", ()))


def posted(new: Any, old: Any = None) -> bytes:
    """As JSON that Python writes: with the numbers that only JavaScript would refuse."""
    body = json.loads(review(None))
    body["request"] |= {"object": new, "oldObject": old, "operation": "UPDATE" if old else "CREATE"}
    return json.dumps(body).encode(errors="surrogatepass")


def named(kind: Kind[Object], new: Manifest) -> Manifest:
    return {"apiVersion": "slinky.slurm.net/v1beta1", "kind": kind.name, **new}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_objects_made_from_the_schema(post: Post, kind: Kind[Object]) -> None:
    @settings(max_examples=CASES_PER_TEST)
    @given(new=whole(kind), old=st.one_of(st.none(), whole(kind)))
    def run(new: Manifest, old: Manifest | None) -> None:
        body = posted(named(kind, new), old and named(kind, old))
        check(post(validate_path(kind), body))
        check(post(default_path(kind), body))

    run()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_good_objects_with_something_broken(post: Post, kind: Kind[Object]) -> None:
    good = [case.new for case in CASES if case.kind == kind.name and case.verdict == "accepted"]

    @settings(max_examples=CASES_PER_TEST)
    @given(st.sampled_from(good), st.lists(st.integers(0, 9), min_size=1, max_size=7), JUNK, st.sampled_from(good))
    def run(base: Manifest, steps: list[int], junk: Any, old: Manifest) -> None:
        new = broken(base, steps, junk)
        check(post(validate_path(kind), posted(new)))
        check(post(validate_path(kind), posted(new, old)))
        check(post(default_path(kind), posted(new)))

    run()


def test_reviews_with_something_broken(post: Post) -> None:
    good = json.loads(review(CASES[0].new, CASES[0].new))
    path = validate_path(next(kind for kind in KINDS if kind.name == CASES[0].kind))

    @settings(max_examples=CASES_PER_TEST)
    @given(st.lists(st.integers(0, 9), min_size=1, max_size=4), JUNK, st.sampled_from([path, PATH]))
    def run(steps: list[int], junk: Any, place: str) -> None:
        body = json.dumps(broken(good, steps, junk)).encode(errors="surrogatepass")
        check(post(place, body))

    run()


def test_bytes(post: Post) -> None:
    good = review(CASES[0].new)

    @settings(max_examples=CASES_PER_TEST)
    @given(st.one_of(st.binary(max_size=40), st.integers(0, len(good)).map(lambda end: good[:end])))
    def run(body: bytes) -> None:
        check(post(PATH, body))

    run()
