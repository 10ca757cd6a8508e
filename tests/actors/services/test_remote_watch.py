"""Watches over a link: the end of the worker, of the link, of the service, and silence."""

from __future__ import annotations

from asyncio import sleep, wait_for
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors.access import deny_all
from onward.actors.services import (
    RemoteWatch,
    RemoteWatchOptions,
    WatchEnd,
    WatchOutcome,
    WatchService,
    WatchServiceOptions,
)
from onward.actors.testing import Probe
from onward.protocol import Address, address
from onward.protocol.services import (
    WatchNotice,
    WatchRequest,
    WatchState,
    decode_watch_notice,
    encode_watch_notice,
    encode_watch_request,
)
from onward.transports.simulated import SimulatedNetwork
from tests.support.fixtures import Caplog
from tests.support.workers import Echo, Failing, start_worker

ORDERS = address("orders")


class Pair:
    """Two nodes with a link: `a` watches, and `b` has the service and a worker."""

    def __init__(self, network: SimulatedNetwork, a: Node, b: Node, link: Address) -> None:
        self.network = network
        self.a = a
        self.b = b
        self.link = link
        self.ends: list[WatchEnd] = []
        self.service = WatchService(["orders", "order-*"])

    async def watch(self, watched: str = "orders", **options: Any) -> RemoteWatch:
        watch = await RemoteWatch.on(
            self.a,
            [self.link, "watch"],
            watched,
            self.ends.append,
            options=RemoteWatchOptions(**options),
        )
        await watch.until_known()
        return watch

    def outcomes(self) -> list[WatchOutcome]:
        return [end.outcome for end in self.ends]


@asynccontextmanager
async def pair(options: WatchServiceOptions | None = None) -> AsyncGenerator[Pair]:
    async with SimulatedNetwork() as network:
        a, b = await network.node("a"), await network.node("b")
        await b.listen("sim://b", expose=["watch"])
        made = Pair(network, a, b, await a.connect("sim://b"))
        if options is not None:
            made.service = WatchService(["orders", "order-*"], options=options)
        await b.start(lambda: made.service, address="watch")
        await b.start(Echo, address="orders")
        yield made


@pytest.fixture
async def both() -> AsyncGenerator[Pair]:
    async with pair() as made:
        yield made


async def test_the_end_of_a_worker_is_told_once_and_at_once(both: Pair) -> None:
    watch = await both.watch()
    await sleep(100)
    assert watch.end is None
    assert both.service.watches == 1
    await both.b.stop_worker("orders")
    end = await wait_for(watch.until_ended(), 1)
    assert end == WatchEnd(ORDERS, WatchOutcome.STOPPED)
    assert str(end) == "0#orders: stopped"
    await sleep(100)
    assert both.ends == [end]
    assert not both.a.has(watch.address)
    assert both.service.watches == 0
    assert both.service.expired == 1


async def test_a_restart_is_no_end(both: Pair) -> None:
    await both.b.start(Failing, address="order-1", supervision=Supervision(OnFailure.RESTART))
    watch = await both.watch("order-1")
    both.b.send("order-1", b"!")
    await sleep(100)
    assert watch.end is None


@pytest.mark.parametrize("watched", ["gone", "order-9", "watch"])
async def test_a_worker_that_is_not_there_or_not_watchable(watched: str, both: Pair) -> None:
    watch = await both.watch(watched)
    assert watch.end == WatchEnd(address(watched), WatchOutcome.REFUSED)
    assert both.ends == [watch.end]


async def test_the_number_of_watches_is_limited() -> None:
    async with pair(WatchServiceOptions(max_watches=1)) as both:
        first = await both.watch()
        second = await both.watch(timeout=11.0)
        assert first.end is None
        assert str(second.end) == "0#orders: too many (for 11 s)"
        assert both.service.refused == 3  # it asks again every 5 seconds


async def test_a_watch_for_which_there_is_no_room_begins_when_there_is() -> None:
    async with pair(WatchServiceOptions(max_watches=1, expire_after=4)) as both:
        first = await both.watch(interval=1.0)
        first.close()
        second = await both.watch()
        assert second.end is None
        both.network.partition(["a"], ["b"])
        assert (await second.until_ended()).outcome is WatchOutcome.NO_ANSWER


async def test_one_peer_cannot_have_all_watches() -> None:
    async with pair(WatchServiceOptions(max_watches=50, expire_after=60)) as both:
        evil = await both.network.node("evil")
        link = await evil.connect("sim://b")
        for number in range(200):
            request = encode_watch_request(WatchRequest(b"t%d" % number, ORDERS))
            evil.send([link, "watch"], request, return_route="nowhere")
        await sleep(1)
        assert both.service.watches == 25
        own = await RemoteWatch.on(both.b, "watch", "orders")
        for watch in (await both.watch(), own):
            assert await watch.until_known() is None
        await sleep(80)  # those of the peer expire, and others can have as many
        assert both.service.watches == 2
        many = [await both.watch() for _ in range(24)]
        assert all(watch.end is None for watch in many)


async def test_the_stop_of_the_link_ends_a_watch(both: Pair) -> None:
    watch = await both.watch()
    await both.a.stop_worker(both.link)
    assert await watch.until_ended() == WatchEnd(ORDERS, WatchOutcome.LINK_LOST)
    late = await RemoteWatch.on(both.a, [both.link, "watch"], "orders")
    assert (await late.until_ended()).outcome is WatchOutcome.LINK_LOST


async def test_silence_ends_a_watch_after_its_timeout(both: Pair) -> None:
    watch = await both.watch()
    both.network.partition(["a"], ["b"])
    await sleep(14)
    assert watch.end is None
    end = await wait_for(watch.until_ended(), 7)
    assert str(end) == "0#orders: no answer (for 15 s)"


async def test_a_short_silence_ends_no_watch_and_an_end_meanwhile_is_told(both: Pair) -> None:
    watch = await both.watch()
    both.network.partition(["a"], ["b"])
    await both.b.stop_worker("orders")
    await sleep(8)
    assert watch.end is None
    both.network.heal()
    assert (await wait_for(watch.until_ended(), 6)).outcome is WatchOutcome.STOPPED


async def test_a_watch_that_has_expired_is_forgotten() -> None:
    async with pair(WatchServiceOptions(expire_after=4)) as both:
        watch = await both.watch(interval=10.0, timeout=60.0)
        await sleep(6)
        assert both.service.watches == 0
        assert not both.b.parts.workers.is_watched("orders")
        assert (await watch.until_ended()).outcome is WatchOutcome.FORGOTTEN


async def test_a_service_that_stops_says_so(both: Pair) -> None:
    watch, stopped = await both.watch(), await both.watch("orders")
    await both.b.stop_worker("orders")
    again = WatchService(["orders"])
    await sleep(1)
    assert both.outcomes() == [WatchOutcome.STOPPED] * 2
    await both.b.start(Echo, address="orders")
    watch = await both.watch()
    await both.b.stop_worker("watch")
    assert (await wait_for(watch.until_ended(), 1)).outcome is WatchOutcome.FORGOTTEN
    assert not both.b.parts.workers.is_watched("orders")
    await both.b.start(lambda: again, address="watch")
    assert stopped.end is not None


async def test_a_service_that_was_started_anew_does_not_know_the_watch(node: Node) -> None:
    await node.start(Echo, address="orders")
    options = RemoteWatchOptions()
    supervision = Supervision(OnFailure.RESTART)

    class Fickle(WatchService):
        def _sweep(self) -> None:
            raise ValueError("a fault")

    await node.start(lambda: Fickle(["orders"]), address="watch", supervision=supervision)
    local = await RemoteWatch.on(node, "watch", "orders", options=options)
    assert await local.until_known() is None
    assert (await local.until_ended()).outcome is WatchOutcome.FORGOTTEN
    assert not node.parts.workers.is_watched("orders")


async def test_an_instance_that_is_started_again_has_no_watches(both: Pair) -> None:
    watch = await both.watch()
    # Its last notice is lost with the link, so the watcher asks the instance that goes on.
    both.network.partition(["a"], ["b"])
    await both.b.stop_worker("watch")
    assert both.service.watches == 0
    both.network.heal()
    await both.b.start(lambda: both.service, address="watch")
    assert (await watch.until_ended()).outcome is WatchOutcome.FORGOTTEN
    again = await both.watch()
    await both.b.stop_worker("orders")
    assert (await again.until_ended()).outcome is WatchOutcome.STOPPED


async def test_a_failed_instance_that_goes_on_has_no_watches(node: Node) -> None:
    class Fickle(WatchService):
        def _sweep(self) -> None:
            if self.watches:
                raise ValueError("a fault")

    await node.start(Echo, address="orders")
    service = Fickle(["orders"])
    supervision = Supervision(OnFailure.RESTART)
    await node.start(lambda: service, address="watch", supervision=supervision)
    watch = await RemoteWatch.on(node, "watch", "orders")
    assert await watch.until_known() is None
    assert (await watch.until_ended()).outcome is WatchOutcome.FORGOTTEN
    assert service.watches == 0


async def test_a_route_that_leads_nowhere(node: Node) -> None:
    watch = await RemoteWatch.on(node, [], "orders")
    assert (await watch.until_ended()).outcome is WatchOutcome.NO_ANSWER


async def test_a_closed_watch_calls_no_function(both: Pair) -> None:
    watch = await both.watch()
    watch.close()
    watch.close()
    assert (await watch.until_ended()).outcome is WatchOutcome.CLOSED
    stopped = await both.watch()
    await both.a.stop_worker(stopped.address)
    assert stopped.end is not None
    assert both.ends == []


async def test_a_function_that_raises_is_logged(caplog: Caplog, node: Node) -> None:
    def ended(_end: WatchEnd) -> None:
        raise ValueError("in the function")

    watch = await RemoteWatch.on(node, "gone", "orders", ended)
    await watch.until_ended()
    assert "the function of a watch of 0#orders failed" in caplog.text


async def test_other_messages_to_a_watch_are_dead_letters(both: Pair) -> None:
    watch = await both.watch()
    other = WatchNotice(b"other", WatchState.STOPPED)
    for payload in (b"", encode_watch_notice(other)):
        both.a.send([watch.address], payload)
    await sleep(1)
    assert watch.end is None
    assert both.a.dead_letters.by_reason == {"not of this watch": 2}


async def test_an_error_reply_is_no_answer() -> None:
    async with Node(error_replies=True) as node:
        service = await start_worker(node, WatchService(["orders"], allow=deny_all), "watch")
        await node.start(Echo, address="orders")
        watch = await RemoteWatch.on(node, "watch", "orders")
        assert (await watch.until_ended()).outcome is WatchOutcome.NO_ANSWER
        assert service.refused == 4


async def test_a_stopped_worker_is_reported_until_the_watch_expires(both: Pair) -> None:
    probe = await Probe.on(both.b, "probe")
    request = encode_watch_request(WatchRequest(b"token", ORDERS))
    probe.send("watch", request)
    await probe.next()
    await both.b.stop_worker("orders")
    await probe.next()
    probe.send("watch", request)
    again = await probe.next()
    assert decode_watch_notice(again.payload) == WatchNotice(b"token", WatchState.STOPPED)
    # Its watcher has gone: the notice at its stop is lost without an error.
    await both.b.start(Echo, address="order-2")
    probe.send("watch", encode_watch_request(WatchRequest(b"other", address("order-2"))))
    await probe.next()
    await both.b.stop_worker("probe")
    await both.b.stop_worker("order-2")
    await sleep(40)
    assert both.service.watches == 0
