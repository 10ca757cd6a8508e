"""What the tests of all peers share, and the table of what they were run with."""

from __future__ import annotations

import uuid

import pytest

from tests.peers.programs import TRANSPORTS, why_not


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
