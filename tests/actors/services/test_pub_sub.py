from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.access import deny_all
from onward.actors.services import PubSubOptions, PubSubService, Subscriber, Topic
from onward.actors.testing import Probe
from onward.protocol import Address, Message, NotDelivered, route
from onward.protocol.bare import encode_string
from onward.protocol.services import ServiceError
from onward.transports.simulated import SimulatedNetwork
from tests.support.transports import Stuck
from tests.support.workers import start_worker

WEATHER = "pub_sub_t_weather"


async def served(node: Node, options: PubSubOptions | None = None) -> PubSubService:
    return await start_worker(node, PubSubService(options=options or PubSubOptions()), "pub_sub")


def topic(service: PubSubService, name: str = "weather") -> Topic:
    return service.topics[Address(0, f"pub_sub_t_{name}".encode())]


async def test_each_subscriber_gets_each_message(node: Node) -> None:
    service = await served(node)
    probes = [await Probe.on(node, name) for name in ("one", "two")]
    for probe in probes:
        probe.send("pub_sub", encode_string(f"{probe.address.value.decode()}:weather"))
    await sleep(0.1)
    node.send([WEATHER, "further"], b"rain", return_route="publisher")
    node.send([WEATHER], b"sun")
    for probe in probes:
        first, second = await probe.count(2)
        assert (first.payload, second.payload) == (b"rain", b"sun")
        assert first.onward_route == (probe.address, *route("further"))
        assert first.return_route == route("publisher")
    assert topic(service).published == 2
    assert [each.sent for each in topic(service).subscriptions.values()] == [2, 2]


async def test_the_same_name_replaces_and_what_is_not_renewed_expires(node: Node) -> None:
    service = await served(node)
    old, new = await Probe.on(node, "old"), await Probe.on(node, "new")
    old.send("pub_sub", encode_string("screen:weather"))
    await sleep(5)
    old.send("pub_sub", encode_string("screen:weather"))
    new.send("pub_sub", encode_string("screen:weather"))
    new.send("pub_sub", encode_string("other:news"))
    await sleep(1)
    node.send(WEATHER, b"rain")
    assert (await new.next()).payload == b"rain"
    assert old.messages == []
    await sleep(20)
    new.send("pub_sub", encode_string("other:news"))
    await sleep(20)
    assert set(service.topics) == {Address(0, b"pub_sub_t_news")}
    assert service.expired == 1


async def test_a_subscriber_that_does_not_keep_up_holds_up_nobody(node: Node) -> None:
    service = await served(node, PubSubOptions(max_failures=3))
    stuck = await start_worker(node, Stuck(), "stuck", mailbox=MailboxOptions(limit=2))
    good = await Probe.on(node, "good")
    for name in ("stuck", "good", "gone"):
        node.send("pub_sub", encode_string(f"{name}:weather"), return_route=name)
    await sleep(0.1)
    for number in range(10):
        node.send(WEATHER, bytes([number]))
        await sleep(0.01)
    assert good.payloads == [bytes([number]) for number in range(10)]
    assert list(topic(service).subscriptions) == ["good"]
    assert topic(service).dropped == 2
    assert node.dead_letters.by_reason == {"mailbox full": 3, "no such worker": 1}
    stuck.go_on.set()


async def test_a_failure_that_passes_is_forgiven(node: Node) -> None:
    service = await served(node, PubSubOptions(max_failures=2))
    stuck = await start_worker(node, Stuck(), "stuck", mailbox=MailboxOptions(limit=1))
    node.send("pub_sub", encode_string("stuck:weather"), return_route="stuck")
    await sleep(0.1)
    for _ in range(4):
        for _ in range(3 if not stuck.go_on.is_set() else 1):
            node.send(WEATHER, b"rain")
            await sleep(0.01)
        stuck.go_on.set()
        await sleep(0.1)
    (subscription,) = topic(service).subscriptions.values()
    assert (subscription.failed, subscription.failures) == (1, 0)


async def test_a_topic_without_subscribers_is_gone(node: Node) -> None:
    service = await served(node)
    node.send("pub_sub", encode_string("gone:weather"), return_route="gone")
    await sleep(0.1)
    node.send(WEATHER, b"rain")
    await sleep(0.1)
    assert service.topics == {}
    assert not node.has(WEATHER)


async def test_limits_and_what_cannot_be_subscribed_to(node: Node) -> None:
    service = await served(node, PubSubOptions(max_topics=1, max_subscribers=1))
    probe = await Probe.on(node, "probe")
    probe.send("pub_sub", encode_string("me:weather"))
    for subscription, reason in (
        ("me:news", "too many topics"),
        ("you:weather", "too many subscribers"),
        ("weather", "without a colon"),
    ):
        with pytest.raises(NotDelivered, match=reason):
            await node.request("pub_sub", encode_string(subscription))
    assert service.refused == 3


async def test_a_topic_whose_address_is_in_use_or_cannot_be_exposed(node: Node) -> None:
    service = await start_worker(node, PubSubService(expose_at=["gone"]), "pub_sub")
    await Probe.on(node, "pub_sub_t_taken")
    for name, reason in (("taken", "in use"), ("weather", "cannot be exposed")):
        with pytest.raises(NotDelivered, match=reason):
            await node.request("pub_sub", encode_string(f"me:{name}"))
    assert service.topics == {}


async def test_a_topic_is_no_subscriber(node: Node) -> None:
    service = await served(node)
    for back in ("probe", "pub_sub_t_weather => probe"):
        node.send("pub_sub", encode_string("me:weather"), return_route=back)
    await sleep(0.1)
    assert service.refused == 1


async def test_a_subscriber_subscribes_again_and_again(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    listener = await b.listen("sim://b", expose=["pub_sub"])
    service = await start_worker(b, PubSubService(expose_at=[listener.address]), "pub_sub")
    link = await a.connect("sim://b")
    seen: list[bytes] = []

    def show(message: Message) -> None:
        seen.append(message.payload)

    subscriber = await Subscriber.on(a, [link, "pub_sub"], "screen", "weather", show)
    for number in range(5):
        await sleep(20)
        a.send([link, WEATHER], bytes([number]))
    await sleep(1)
    assert seen == [bytes([number]) for number in range(5)]
    assert subscriber.received == 5
    await a.stop_worker(subscriber.address)
    await sleep(40)
    assert service.topics == {}


async def test_a_subscriber_that_hands_on_to_a_worker_and_hears_of_a_refusal() -> None:
    async with Node(error_replies=True) as node:
        probe = await Probe.on(node, "probe")
        subscriber = await Subscriber.on(node, "pub_sub", "me", "weather", "probe", address="sub")
        assert subscriber.failed == 1  # there is no service yet
        service = await served(node)
        await sleep(11)
        node.send([WEATHER, "further"], b"rain", return_route="publisher")
        message = await probe.next()
        assert message.onward_route == route("probe => further")
        assert message.return_route == route("publisher")
        await node.stop_worker("probe")
        node.send(WEATHER, b"rain")
        await sleep(0.1)
        assert node.dead_letters.by_reason["no such worker"] == 1
        service._allow = deny_all
        await sleep(10)
        assert subscriber.refusal is not None
        assert subscriber.refusal.reason == "denied"


def test_a_name_that_cannot_be_one() -> None:
    with pytest.raises(ServiceError):
        Subscriber("pub_sub", "a:b", "weather", "probe")
