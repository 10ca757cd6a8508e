"""What the tests of all peers share, and the table of what they were run with."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

pytest.register_assert_rewrite("tests.peers.clients", "tests.peers.interactions")

from tests.peers.clients import Java  # noqa: E402
from tests.peers.jvm import JavaMissing  # noqa: E402
from tests.peers.programs import TRANSPORTS, why_not  # noqa: E402


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """What clients reach the broker by."""
    name: str = request.param
    if problem := why_not(name):
        pytest.skip(problem)
    return name


@pytest.fixture
def service() -> str:
    """The name of a service that no other test has."""
    return f"orders-{uuid.uuid4().hex}"


async def running_java() -> AsyncGenerator[Java]:
    """A JVM for the tests of a module, which have to run on the module's loop."""
    try:
        async with Java.running() as java:
            yield java
    except JavaMissing as error:
        pytest.skip(f"Java peer: {error}")


requesters = pytest_asyncio.fixture(running_java, scope="module", loop_scope="module")
destinations = pytest_asyncio.fixture(running_java, scope="module", loop_scope="module")
