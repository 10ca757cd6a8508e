from __future__ import annotations

import asyncio

import pytest

from tests.support.virtual import Deadlock, VirtualLoop, run_virtual, virtual_time


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        began = loop.time()
        log: list[tuple[float, str]] = []

        async def after(seconds: float) -> None:
            await asyncio.sleep(seconds)
            log.append((loop.time() - began, f"{seconds}"))

        await asyncio.gather(after(3600), after(1), after(60))
        return log

    assert run_virtual(main()) == [(1.0, "1"), (60.0, "60"), (3600.0, "3600")]


def test_a_wait_without_an_end_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(main())


@virtual_time
async def test_no_time_passes_while_code_runs() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(100):
        await asyncio.sleep(0)
    assert loop.time() == began == 1000.0
