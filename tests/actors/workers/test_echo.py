from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors.workers import Answer, Echo, Replier
from onward.protocol import NotDelivered, WorkerFailed
from onward.protocol.payloads import PayloadError


async def test_echo_answers_with_what_came(node: Node) -> None:
    echo = await node.start(Echo, address="echo")
    answer = await node.request("echo", b"hi")
    assert (answer.payload, answer.return_route) == (b"hi", (echo,))


async def test_echo_of_a_message_with_no_way_back_is_a_dead_letter(node: Node) -> None:
    await node.start(Echo, address="echo")
    node.send("echo", b"hi")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"empty route": 1}
    assert node.statistics().failed == 0


async def _later(payload: bytes) -> bytes | None:
    await asyncio.sleep(1)
    if payload == b"bad":
        raise PayloadError("bad indeed")
    return payload.upper() or None


def _now(payload: bytes) -> bytes | None:
    if payload == b"bad":
        raise PayloadError("bad indeed")
    return payload.upper() or None


@pytest.mark.parametrize("function", [_now, _later])
async def test_a_replier_answers_with_what_its_function_makes(function: Answer, node: Node) -> None:
    await node.start(lambda: Replier(function), address="upper")
    assert (await node.request("upper", b"hi")).payload == b"HI"
    with pytest.raises(NotDelivered, match="bad payload: bad indeed"):
        await node.request("upper", b"bad")
    assert node.dead_letters.by_reason == {"bad payload": 1}
    assert node.statistics().failed == 0
    with pytest.raises(TimeoutError):
        await node.request("upper", b"", timeout=3)


async def test_a_replier_fails_as_its_function_fails(node: Node) -> None:
    await node.start(
        lambda: Replier(lambda payload: bytes(int(payload))),
        address="zeros",
        supervision=Supervision(OnFailure.RESTART),
    )
    with pytest.raises(WorkerFailed):
        await node.request("zeros", b"many")
    assert (await node.request("zeros", b"2")).payload == b"\0\0"
    assert node.statistics().restarts == 1
