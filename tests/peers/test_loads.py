"""The books of the loads: what is wrong with elements, or does not arrive, is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.peers.clients import CANCELED
from tests.peers.loads import Handled, Load, Told, loaded
from tests.peers.programs import TIMEOUT
from tests.peers.rsocket_client import Outcome


def answering(make: Callable[[list[str]], Outcome]) -> Load:
    """Return a load whose streams end as is made of the elements that were asked for."""

    async def ask(_: str, argument: str) -> Outcome:
        count, text = argument.split(" ")
        return make([f"{number} {text} from here" for number in range(1, int(count) + 1)])

    return Load("load", ask)


ENDS: dict[str, tuple[Callable[[list[str]], Outcome], str, int]] = {
    "whole": (Outcome, "answered", 0),
    "early": (lambda asked: Outcome(asked[:7], CANCELED, "lost"), "canceled", 1),
    "at once": (lambda _: Outcome([], CANCELED, "lost"), "canceled", 0),
    "reset": (lambda _: Outcome([], None, "read ECONNRESET"), "closed", 0),
    "short": (lambda asked: Outcome(asked[:7]), "wrong", 1),
    "lost": (lambda asked: Outcome(asked[:3] + asked[4:], CANCELED, "lost"), "wrong", 1),
    "double": (lambda asked: Outcome(asked[:3] + asked[2:]), "wrong", 1),
    "of another": (lambda asked: Outcome(["1 load-2 from here", *asked[1:]]), "wrong", 1),
}
"""What a stream ends with, what that is called, and whether it was ended early."""


@pytest.mark.parametrize(("make", "kind", "cut"), ENDS.values(), ids=ENDS)
async def test_the_elements_of_a_stream(
    make: Callable[[list[str]], Outcome], kind: str, cut: int
) -> None:
    load = answering(make)
    found = await load.one("request_stream", "service")
    assert found.partition(" ")[0] == kind
    assert (load.outcomes.total(), load.cut) == (1, cut)
    assert load.texts == {found: {"load-1"}}


async def test_loads_end_although_a_cancellation_is_forgotten() -> None:
    asked = asyncio.Event()

    async def ask(_: str, argument: str) -> Outcome:
        if load.sent > 1:
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()
        return Outcome([argument])

    load = Load("load", ask)
    async with asyncio.timeout(TIMEOUT), loaded([load]):
        await asked.wait()
    assert load.sent == load.outcomes.total() == 2


async def test_what_is_told_has_a_number_and_a_destination() -> None:
    outcomes = iter([Outcome([]), Outcome([], None, "refused"), Outcome([])])

    async def ask(_: str, __: str) -> Outcome:
        return next(outcomes)

    load = Load("load", ask)
    for service in ("a", "b", "c"):
        await load.one("fire_and_forget", service)
    assert load.told == [Told(1, "a", "load-1"), Told(3, "c", "load-3")]
    assert load.told_since(1) == load.told[1:]
    assert load.told_since(None) == []


def test_what_a_destination_got_has_the_text_of_the_request() -> None:
    handled = Handled()
    handled.note("at-a", "request_stream", "40 load-1")
    handled.note("at-a", "fire_and_forget", "load-2")
    handled.note("at-b", "metadata_push", "")
    assert handled.at == {"at-a": {"load-1": 1, "load-2": 1}}
    assert handled.pushes == {"at-b": 1}
