"""What parts of a program tell the broker about themselves."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from onward.actors import LimitReached, Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, BrokerOptions
from onward.transports.rsocket import RSocketListener
from tests.support.rsocket_peer import RR, World, asked_for, in_world, request


async def statistics(node: Node) -> Any:
    answer = await node.request(f"32#service={MANAGEMENT_SERVICE}", b"statistics")
    return json.loads(answer.payload)


async def test_parts_tell_about_themselves_until_they_do_no_more(node: Node) -> None:
    broker = await Broker.attach(node)
    assert (await statistics(node))["listeners"] == []
    ends = [broker.report(name, lambda: {"streams": 2, "other": "x"}) for name in "aba"]
    assert [name for name, _ in broker.reports()] == ["a", "b", "a"]
    told = await statistics(node)
    assert told["listeners"][1] == {"uri": "b", "streams": 2, "other": "x"}
    assert told["streams"] == 6
    for _ in range(2):
        ends[0]()
    assert [name for name, _ in broker.reports()] == ["b", "a"]


@pytest.mark.real_time
async def test_there_are_only_so_many(node: Node) -> None:
    broker = await Broker.attach(node, BrokerOptions(max_reports=1))
    uri = "rsocket+tcp://127.0.0.1:0"
    first = await node.listen(uri, broker=broker)
    with pytest.raises(LimitReached, match="limit of 1 for reports"):
        await node.listen(uri, broker=broker)
    await first.close()
    assert broker.reports() == ()
    again = await node.listen(uri, broker=broker)
    assert [name for name, _ in broker.reports()] == [again.uri]
    assert isinstance(again, RSocketListener)


async def test_one_that_fails_has_no_figures(caplog: pytest.LogCaptureFixture, node: Node) -> None:
    broker = await Broker.attach(node)

    def fails() -> dict[str, int]:
        raise ZeroDivisionError("a part that cannot tell")

    broker.report("broken", fails)
    with caplog.at_level(logging.ERROR):
        assert (await statistics(node))["listeners"] == [{"uri": "broken"}]
    assert "broken cannot report its figures" in caplog.text


@in_world()
async def test_a_listener_counts_the_streams_of_both_sides(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, asked_for("a")))
    assert w.listener.statistics().streams == 2
    ((name, figures),) = w.broker.reports()
    assert (name, figures["streams"], figures["connections"]) == (w.listener.uri, 2, 2)
    requester.die()
    destination.die()
    await w.loop.idle()
    assert w.listener.statistics().streams == 0
