"""Real time: event logs are written by threads."""

from __future__ import annotations

import asyncio

from tests.support.loops import LoopFactory


def pytest_asyncio_loop_factories() -> dict[str, LoopFactory]:
    """Run all tests on a real loop."""
    return {"real": asyncio.new_event_loop}
