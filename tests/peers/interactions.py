"""What holds for every pair of requester and destination, whatever they are written in.

A test module inherits from `Interactions`, and has the fixtures `ask`, `destination`, `answerer`
(the language of the destination, which its answers name) and `lost` (the codes of the error when a
destination is lost).
"""

from __future__ import annotations

import asyncio

from tests.peers.clients import APPLICATION_ERROR, Ask, Destination
from tests.peers.rsocket_client import CREDIT, Outcome, Received

__all__ = ["Interactions", "MetadataPush"]


class Interactions:
    """Tests of each interaction."""

    async def test_request_response(
        self, ask: Ask, destination: Destination, answerer: str
    ) -> None:
        outcome = await ask("request_response", "hello")
        assert outcome == Outcome([f"hello from {answerer}"])
        # The metadata beside the ADDRESS came along.
        assert await destination.received() == Received("request_response", "hello", "echo")

    async def test_fire_and_forget(self, ask: Ask, destination: Destination) -> None:
        assert await ask("fire_and_forget", "note") == Outcome([])
        assert await destination.received() == Received("fire_and_forget", "note", "echo")

    async def test_request_stream(self, ask: Ask, destination: Destination, answerer: str) -> None:
        outcome = await ask("request_stream", "12")
        assert outcome == Outcome([f"{n} from {answerer}" for n in range(1, 13)])
        assert await destination.received() == Received("request_stream", "12", "echo")

    async def test_a_canceled_stream_stops_within_its_credit(
        self, ask: Ask, destination: Destination, answerer: str
    ) -> None:
        outcome = await ask("first_of_stream", "3")
        assert outcome == Outcome([f"{n} from {answerer}" for n in range(1, 4)])
        await destination.received()
        # It would send for ever; the requester is never more than five elements ahead.
        assert 3 <= await destination.canceled() <= 3 + CREDIT

    async def test_request_channel(self, ask: Ask, destination: Destination, answerer: str) -> None:
        outcome = await ask("request_channel", "a,b,c,d,e,f,g,h")
        assert outcome == Outcome([f"{letter} from {answerer}" for letter in "abcdefgh"])
        assert await destination.received() == Received("request_channel", "a", "echo")

    async def test_the_error_of_a_destination_arrives_unchanged(
        self, ask: Ask, destination: Destination, answerer: str
    ) -> None:
        outcome = await ask("request_response", "fail")
        assert outcome == Outcome([], APPLICATION_ERROR, f"refused by {answerer}")
        await destination.received()

    async def test_a_request_whose_destination_is_lost_fails(
        self, ask: Ask, destination: Destination, lost: set[int | None]
    ) -> None:
        pending = asyncio.ensure_future(ask("request_response", "hold"))
        assert await destination.received() == Received("request_response", "hold", "echo")
        await destination.kill()
        outcome = await pending
        assert outcome.code in lost
        assert outcome.message is not None


class MetadataPush:
    """The interaction that not every client has."""

    async def test_metadata_push(self, ask: Ask, destination: Destination) -> None:
        assert await ask("metadata_push", "news") == Outcome([])
        assert await destination.received() == Received("metadata_push", "", "news")
