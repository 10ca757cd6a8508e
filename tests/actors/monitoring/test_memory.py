"""The tracing of allocations, which ends by itself."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Generator

import pytest

from onward.actors.monitoring import _memory as memories
from onward.actors.monitoring._memory import MemoryTrace


@pytest.fixture(autouse=True)
def untraced() -> Generator[None]:
    yield
    tracemalloc.stop()


async def test_it_ends_after_a_while() -> None:
    memory = MemoryTrace(asyncio.get_running_loop())
    memory.start(100)
    assert tracemalloc.get_traceback_limit() == memories.MAX_FRAMES
    await asyncio.sleep(memories.MAX_SECONDS - 1)
    assert tracemalloc.is_tracing()
    await asyncio.sleep(2)
    assert not tracemalloc.is_tracing()
    memory.start()
    memory.start(2)  # begun anew
    assert tracemalloc.get_traceback_limit() == 2
    memory.stop()
    memory.stop()


async def test_it_ends_when_it_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryTrace(asyncio.get_running_loop())
    memory.start()
    monkeypatch.setattr(tracemalloc, "get_tracemalloc_memory", lambda: memories.MAX_OVERHEAD + 1)
    await asyncio.sleep(2)
    assert not tracemalloc.is_tracing()


@pytest.mark.real_time
async def test_a_report_while_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryTrace(asyncio.get_running_loop())
    assert (await memory.report())["tracing"] is False
    memory.start()

    def ended() -> tracemalloc.Snapshot:
        raise RuntimeError

    monkeypatch.setattr(tracemalloc, "take_snapshot", ended)
    assert (await memory.report())["lines"] == []
    memory.stop()
