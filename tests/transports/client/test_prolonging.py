"""New credentials for a connection, before the old ones expire."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onward.actors.broker import Answer
from onward.protocol.broker import Dialect
from onward.protocol.security import BearerToken, Credentials, Principal
from onward.transports.client import ClientOptions, RequestRejected, connect
from onward.transports.client._credentials import ClientCredentials
from onward.transports.client._prolonging import Prolonging
from onward.transports.rsocket import _prolonging
from tests.support.security import gated
from tests.support.transports import eventually
from tests.support.virtual import run_virtual

from .peers import QUICK, broker, echo_handlers, quick

ONE = bytes.fromhex("fc 000004") + b"\x81one"


class Link:
    """A connection whose requests a test answers."""

    name = "broker"

    def __init__(self, *answers: object) -> None:
        self.asked: list[tuple[float, bool]] = []
        self._answers = list(answers)

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def request(self, data: bytes, metadata: bytes) -> Any:
        assert data == b""
        assert b"authenticate" in metadata
        self.asked.append((self.time(), metadata.startswith(ONE)))
        answer = asyncio.get_running_loop().create_future()
        given = self._answers.pop(0)
        if isinstance(given, Exception):
            answer.set_exception(given)
        elif given is not None:
            data = given if isinstance(given, bytes) else json.dumps(given).encode()
            answer.set_result(Answer(data))
        return SimpleNamespace(answer=answer, cancel=answer.cancel)


def prolonged(*answers: object, credentials: Any = None) -> list[tuple[float, bool]]:
    """Return the times of the requests, and whether each has credentials."""

    async def one() -> Credentials:
        return BearerToken(b"one")

    async def scenario() -> list[tuple[float, bool]]:
        link = Link(*answers)
        source = ClientCredentials(credentials or one)
        await Prolonging(cast(Any, link), source, ClientOptions(connect_timeout=9)).run()
        return link.asked

    return run_virtual(scenario())


def lasting(seconds: float | None) -> dict[str, object]:
    return {"principal": "ida", "method": "jwt", "expires": 1.0, "expires_in": seconds}


def test_credentials_are_shown_again_when_most_of_their_time_is_over() -> None:
    asked = prolonged(lasting(100), lasting(1000), lasting(None))
    start = asked[0][0]
    assert [(round(at - start), new) for at, new in asked] == [(0, False), (80, True), (880, True)]


@pytest.mark.parametrize(
    "answer",
    [lasting(None), lasting(0.5), {"error": "what?"}, 5, b"\xff", RequestRejected(514, "")],
)
def test_a_broker_that_needs_no_new_credentials(answer: object) -> None:
    assert len(prolonged(answer)) == 1


def test_a_broker_that_does_not_answer() -> None:
    assert len(prolonged(None)) == 1


def test_failures_are_tried_again_until_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    refused = RequestRejected(0x204, "not authenticated")
    asked = prolonged(lasting(100), *[refused] * 9)
    start = asked[0][0]
    assert [round(at - start, 1) for at, _ in asked] == [0, 80, 96, 99.2]
    assert len(prolonged(lasting(100), None, None)) == 3
    assert "broker: the credentials are not prolonged: " in caplog.text


def test_a_function_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> Credentials:
        raise ValueError("s3cret")

    with caplog.at_level(logging.INFO):
        assert len(prolonged(lasting(100), credentials=fails)) == 1
    assert "there are no credentials: ValueError" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_connection_outlives_its_first_credentials(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_prolonging, "PART", 0.0)
    now = time.time()
    accepted: dict[Credentials | None, Principal] = {
        BearerToken(b"%d" % number): Principal("ida", "test", expires=now + 1000 * number)
        for number in range(1, 5)
    }
    accepted[BearerToken(b"5")] = Principal("ida", "test")
    gate, authentication = gated(accepted)
    left = iter(range(1, 6))

    async def following() -> Credentials:
        return BearerToken(b"%d" % next(left))

    async with (
        broker(authentication=authentication) as (uri, _),
        connect(
            uri,
            service="echo",
            handlers=echo_handlers(),
            credentials=following,
            options=quick(dialect=dialect),
        ) as client,
    ):
        await eventually(lambda: len(gate.seen) == 5)
        assert (await client.request("service=echo", b"hi")).data == b"hi"
        assert client.statistics().connects == 1
    assert [given for given, _ in gate.seen] == list(accepted)


async def test_a_broker_without_authentication() -> None:
    async def token() -> Credentials:
        return BearerToken(b"one")

    async with broker() as (uri, _), connect(uri, credentials=token, options=QUICK) as client:
        with pytest.raises(RequestRejected):
            await client.request("service=echo", b"hi")
