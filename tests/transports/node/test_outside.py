"""What messages from another node may do behind the address they were let in at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import pytest

from onward.actors import Listener, Node, OnFailure, Supervision, Worker
from onward.actors.pipes import PipeChannel, PipeChannelService, PipeSender, PipeService
from onward.actors.services import RelayClient, RelayService, StaticRelayService
from onward.actors.sessions import SessionClient, SessionService
from onward.actors.tracing import HopTracer
from onward.actors.workers import Echo, Forwarder, Proxy, Spawner, Spread, Spreader, Tap
from onward.protocol import Address, Context, Message, NotExposed, Outside, RequestTimeout, route
from onward.protocol.bare import encode_string
from onward.transports import TcpListener
from tests.support.transports import Recorder, eventually


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


class Stepping(Worker):
    """Passes on without a trace."""

    def handle_message(self, message: Message) -> None:
        self.step(message)


class Routing(Worker):
    """Passes on a payload it has changed."""

    def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        self.route(Message(onward[1:], (self.address, *back), payload.upper(), None, context))


class Beside(Worker):
    """Passes on by the node, and not by its own methods."""

    def handle_message(self, message: Message) -> None:
        self.node.route(message.forward())


class BySend(Worker):
    """Passes on by `Node.send`."""

    def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        back = (self.address, *back)
        self.node.send(onward[1:], payload, return_route=back, context=context)


class BySendWait(Worker):
    """Passes on by `Node.send_wait`."""

    async def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        back = (self.address, *back)
        await self.node.send_wait(onward[1:], payload, return_route=back, context=context)


class ByRoute(Worker):
    """Passes on by `Node.route`, with no source."""

    def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        self.node.route(Message(onward[1:], (self.address, *back), payload, None, context))


class ByRouteWait(Worker):
    """Passes on by `Node.route_wait`, with no source."""

    async def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        await self.node.route_wait(
            Message(onward[1:], (self.address, *back), payload, None, context)
        )


class ByDeliver(Worker):
    """Passes on by `Node.deliver`, with no source."""

    def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        self.node.parts.router.dispatch_or_lose(
            Message(onward[1:], (self.address, *back), payload, None, context)
        )


class ByRequest(Worker):
    """Asks on by `Node.request`, and answers with the answer."""

    async def handle_message(self, message: Message) -> None:
        answer = await self.node.request(
            message.onward_route[1:], message.payload, timeout=5.0, context=message.context
        )
        self.reply(message, answer.payload)


class Later(Worker):
    """Passes on after a while."""

    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.forward(message)


class Asking(Worker):
    """Asks on, and answers with the answer."""

    async def handle_message(self, message: Message) -> None:
        answer = await self.request(
            message.onward_route[1:], message.payload, timeout=5.0, context=message.context
        )
        self.reply(message, answer.payload)


FORWARDERS: dict[str, Callable[[], Worker]] = {
    "forward": Forwarder,
    "step": Stepping,
    "route": Routing,
    "node": Beside,
    "node.send": BySend,
    "node.send_wait": BySendWait,
    "node.route": ByRoute,
    "node.route_wait": ByRouteWait,
    "node.parts.router.dispatch_or_lose": ByDeliver,
    "node.request": ByRequest,
    "later": Later,
    "request": Asking,
    "tap": lambda: Tap("seen"),
    "transparent": lambda: Proxy("behind", transparent=True),
    "proxy": lambda: Proxy("behind"),
    "spreader": lambda: Spreader(["behind"], Spread.ROUND_ROBIN),
    "spawner": lambda: Spawner(lambda _: Forwarder(), lambda _: b"one"),
}


async def fresh(stack: AsyncExitStack, *names: str) -> list[Node]:
    return [await stack.enter_async_context(Node(name)) for name in names]


async def outside(
    node: Node, near: Node, expose: Iterable[str], allow: Iterable[str] = ()
) -> tuple[Address, Listener]:
    listener = await node.listen("tcp://127.0.0.1:0", expose=expose, allow=allow)
    return await near.connect(listener.uri), listener


@pytest.mark.parametrize("kind", FORWARDERS)
@pytest.mark.parametrize("traced", [False, True])
async def test_a_peer_reaches_nothing_behind_what_is_exposed(kind: str, traced: bool) -> None:
    async with AsyncExitStack() as stack:
        node, near, third = await fresh(stack, "node", "near", "third")
        if traced:
            node.add_instrument(HopTracer(node))
        secret, seen = await Recorder.on(node, "secret"), await Recorder.on(node, "seen")
        await node.start(Forwarder, address="behind")
        await node.start(FORWARDERS[kind], address="in")
        there = await third.listen("tcp://127.0.0.1:0", expose=["secret"])
        link, _ = await outside(node, near, ["in"])
        context = Context(
            trace='{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
        )
        tries = ["secret", f"1#{there.uri[6:]}", "2#127.0.0.1:1", "5#/tmp/x", "32#service=orders"]
        for each in tries:
            near.send([link, "in", each, "secret"], b"x", context=context if traced else None)
        await eventually(lambda: reasons(node).get("not exposed") == len(tries))
        assert not secret.messages
        assert node.statistics().denied >= len(tries)
        assert not [each for each in node.statistics().workers if each.kind == "DialledLink"]
        assert third.statistics().worker_count == 1
        assert len(seen.messages) <= len(tries)
        # A worker of the node itself may.
        if kind != "spawner":
            node.send(["in", "secret"], b"from inside")
            came = await secret.next()
            if kind.endswith("request"):
                secret.reply(came, b"")  # else the node waits for it when it stops


@pytest.mark.parametrize("kind", FORWARDERS)
async def test_what_is_exposed_or_allowed_is_reached(kind: str) -> None:
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        await Recorder.on(node, "seen")
        await node.start(Forwarder, address="behind")
        await node.start(FORWARDERS[kind], address="in")
        for name in ("echo-1", "echo-2", "other"):
            await node.start(Echo, address=name)
        link, _ = await outside(node, near, ["in", "other"], ["echo-*"])
        for name in ("echo-1", "echo-2", "other"):
            answer = await near.request([link, "in", name], b"HI")
            assert answer.payload == b"HI"
        if kind != "step":  # the way back is then that of `echo-1` alone
            with pytest.raises(RequestTimeout):
                await near.request([link, "echo-1"], b"directly", timeout=0.05)


async def test_connecting_out_for_a_peer_is_allowed_by_pattern() -> None:
    async with AsyncExitStack() as stack:
        node, near, third = await fresh(stack, "node", "near", "third")
        await third.start(Echo, address="echo")
        await node.start(Forwarder, address="relay")
        there = (await third.listen("tcp://127.0.0.1:0", expose=["echo"])).uri[6:]
        link, _ = await outside(node, near, ["relay"], ["1#127.0.0.1:*"])
        answer = await near.request([link, "relay", f"1#{there}", "echo"], b"far")
        assert answer.payload == b"far"
        near.send([link, "relay", "1#127.0.0.2:1", "echo"], b"")
        await eventually(lambda: reasons(node) == {"not exposed": 1})


class Sending(Worker):
    """Passes on by `send`."""

    def handle_message(self, message: Message) -> None:
        onward, back, payload, _, context = message
        self.send(onward[1:], payload, return_route=back, context=context)


class SendingWait(Worker):
    """Passes on by `send_wait`, as a message of its own."""

    async def handle_message(self, message: Message) -> None:
        await self.send_wait(message.onward_route[1:], message.payload, context=message.context)


@pytest.mark.parametrize("kind", [*FORWARDERS, "send", "send_wait"])
async def test_a_bad_address_of_others_has_no_worker_restarted(kind: str) -> None:
    kinds = {**FORWARDERS, "send": Sending, "send_wait": SendingWait}
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        await Recorder.on(node, "seen")
        echo = await Recorder.on(node, "echo")
        await node.start(Forwarder, address="behind")
        restart = Supervision(OnFailure.RESTART)
        await node.start(kinds[kind], address="in", supervision=restart)
        link, _ = await outside(node, near, ["in"], ["*"])
        tries: tuple[tuple[str, ...], ...] = (("nobody",), ("nobody", "x"), ())
        for each in tries:
            near.send([link, "in", *each], b"x")
        near.send([link, "in", "echo"], b"done")
        while (came := await echo.next()).payload.lower() != b"done":
            pass
        if kind.endswith("request"):
            echo.reply(came, b"")
        await eventually(lambda: sum(reasons(node).values()) >= len(tries) - (kind == "spawner"))
        assert not [each for each in node.statistics().workers if each.failed or each.restarts]


async def test_a_bad_address_of_its_own_has_a_worker_restarted() -> None:
    class Wrong(Worker):
        def handle_message(self, message: Message) -> None:
            self.send(["nobody", *message.onward_route[1:]], b"", context=message.context)

    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        await node.start(Wrong, address="in", supervision=Supervision(OnFailure.RESTART))
        link, _ = await outside(node, near, ["in"], ["*"])
        near.send([link, "in", "x"], b"")
        await eventually(
            lambda: any(each.restarts for each in node.statistics().workers if each.kind == "Wrong")
        )


async def test_two_workers_in_a_row_are_both_checked() -> None:
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        secret = await Recorder.on(node, "secret")
        for name in ("one", "two"):
            await node.start(Forwarder, address=name)
        link, _ = await outside(node, near, ["one"], ["two"])
        near.send([link, "one", "two", "secret"], b"")
        near.send([link, "one", "two", "one", "secret"], b"")
        await eventually(lambda: reasons(node) == {"not exposed": 2})
        assert not secret.messages


async def test_a_worker_that_was_restarted_is_still_checked() -> None:
    class Once(Worker):
        def handle_message(self, message: Message) -> None:
            if message.payload == b"fail":
                raise ValueError("on purpose")
            self.forward(message)

    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        secret = await Recorder.on(node, "secret")
        await node.start(Once, address="in", supervision=Supervision(OnFailure.RESTART))
        link, _ = await outside(node, near, ["in"])
        near.send([link, "in", "secret"], b"fail")
        near.send([link, "in", "secret"], b"go")
        await eventually(lambda: reasons(node).get("not exposed") == 1)
        assert not secret.messages


async def test_a_way_back_is_no_way_to_others() -> None:
    async with AsyncExitStack() as stack:
        node, near, third = await fresh(stack, "node", "near", "third")
        secret, far = await Recorder.on(node, "secret"), await Recorder.on(third, "far")
        await node.start(Forwarder, address="relay")
        to_third = await node.connect((await third.listen("tcp://127.0.0.1:0", expose=["far"])).uri)
        link, _ = await outside(node, near, ["relay"], [str(to_third)])
        near_worker = await Recorder.on(near, "near")
        near_worker.send([link, "relay", to_third, "far"], b"one")
        came = await far.next()
        for _ in range(3):
            third.send(came.return_route, b"back")  # as often as it likes
            assert (await near_worker.next()).payload == b"back"
        # From `relay`, which is on the way back, nowhere else.
        third.send([*came.return_route[:2], "secret"], b"")
        await eventually(lambda: reasons(node) == {"not exposed": 1})
        assert not secret.messages


async def test_relays_sessions_and_their_ends() -> None:
    async with AsyncExitStack() as stack:
        hub, near, device = await fresh(stack, "hub", "near", "device")
        secret = await Recorder.on(device, "secret")
        await device.start(Echo, address="echo")
        await device.start(Forwarder, address="in")
        await device.start(lambda: SessionService(expose=["echo", "in"]), address="sessions")
        await hub.start(StaticRelayService, address="static_relays")
        link, listener = await outside(hub, near, ["static_relays", "forward_to_d"])
        to_hub = await device.connect(listener.uri, expose=["sessions", "in"], allow=["echo"])
        relay = await RelayClient.on(device, [to_hub, "static_relays"], alias="d")
        await relay.until_up()
        session = await SessionClient.on(near, "session", [link, "forward_to_d", "sessions"])
        await session.until_up()
        assert (await near.request([session.address, "echo"], b"1")).payload == b"1"
        assert (await near.request([session.address, "in", "echo"], b"2")).payload == b"2"
        assert (await near.request([link, "forward_to_d", "in", "echo"], b"3")).payload == b"3"
        near.send([session.address, "in", "secret"], b"")
        near.send([session.address, "secret"], b"")
        near.send([link, "forward_to_d", "in", "secret"], b"")
        await eventually(lambda: reasons(device).get("not exposed") == 3)
        assert not secret.messages
        await session.close()
        await relay.close()


async def test_a_session_is_a_way_for_any_number_of_addresses() -> None:
    async with AsyncExitStack() as stack:
        hub, near, far = await fresh(stack, "hub", "near", "far")
        secret = await Recorder.on(far, "secret")
        await far.start(Echo, address="echo")
        for name in ("a", "b"):
            await far.start(Forwarder, address=name)
        exposed = ("a", "b", "echo")
        await far.start(lambda: SessionService(expose=exposed), address="sessions")
        to_far, _ = await outside(far, hub, ["sessions", *exposed])
        session = await SessionClient.on(hub, "session", [to_far, "sessions"])
        await session.until_up()
        link, _ = await outside(hub, near, ["session"])
        for behind in (["echo"], ["a", "echo"], ["a", "b", "echo"], ["a", "b", "a", "b", "echo"]):
            answer = await near.request([link, "session", *behind], b"x", timeout=5.0)
            assert answer.payload == b"x"
        assert not reasons(hub)
        near.send([link, "session", "a", "b", "secret"], b"x")
        await eventually(lambda: reasons(far) == {"not exposed": 1})
        assert not secret.messages


async def test_a_session_that_was_accepted_is_a_way_for_any_number_of_addresses() -> None:
    async with AsyncExitStack() as stack:
        hub, near, device = await fresh(stack, "hub", "near", "device")
        await device.start(Echo, address="echo")
        await device.start(Forwarder, address="a")
        service = SessionService()
        await hub.start(lambda: service, address="sessions")
        link, listener = await outside(hub, near, ["sessions"])
        to_hub = await device.connect(listener.uri)
        session = await SessionClient.on(
            device, "session", [to_hub, "sessions"], expose=["a", "echo"]
        )
        await session.until_up()
        (accepted,) = service.sessions
        hub.expose(listener.address, accepted.address)
        way: list[Address | str] = [link, accepted.address, "a", "a", "echo"]
        assert (await near.request(way, b"x", timeout=5.0)).payload == b"x"


async def test_a_registration_is_answered_whatever_is_behind_its_address() -> None:
    async with AsyncExitStack() as stack:
        hub, near = await fresh(stack, "hub", "near")
        await hub.start(RelayService, address="relays")
        link, _ = await outside(hub, near, ["relays"])
        onward: list[Address | str] = [link, "relays", "x", "y", "z"]
        answer = await near.request(onward, encode_string("register"), timeout=5.0)
        assert answer.return_route[0] == link


async def test_pipes_and_channels() -> None:
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        secret, out = await Recorder.on(node, "secret"), await Recorder.on(node, "out")
        await node.start(Echo, address="echo")
        await node.start(Forwarder, address="in")
        await node.start(PipeService, address="pipes")
        await node.start(PipeChannelService, address="channels")
        link, _ = await outside(node, near, ["pipes", "channels", "in"], ["out", "echo"])
        await near.start(lambda: PipeSender([link, "pipes"]), address="pipe")
        await near.start(lambda: PipeChannel([link, "channels"]), address="channel")
        near.send(["pipe", "secret"], b"")
        near.send(["channel", "secret"], b"")
        near.send(["pipe", "in", "secret"], b"")
        await eventually(lambda: reasons(node).get("not exposed") == 3)
        near.send(["pipe", "out"], b"1")
        near.send(["pipe", "in", "out"], b"2")
        assert [(await out.next()).payload for _ in range(2)] == [b"1", b"2"]
        assert (await near.request(["channel", "echo"], b"3")).payload == b"3"
        assert (await near.request(["channel", "in", "echo"], b"4")).payload == b"4"
        assert not secret.messages


async def test_what_comes_out_of_a_channel_that_this_end_opened() -> None:
    # The other end may answer whoever sent into it, and reach nobody else.
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        secret, client = await Recorder.on(near, "secret"), await Recorder.on(near, "client")
        far = await Recorder.on(node, "far")
        await node.start(PipeChannelService, address="channels")
        link, _ = await outside(node, near, ["channels"], ["far"])
        await near.start(lambda: PipeChannel([link, "channels"]), address="channel")
        client.send(["channel", "far"], b"hi")
        came = await far.next()
        node.send(came.return_route, b"answer")
        assert (await client.next()).payload == b"answer"
        node.send([came.return_route[0], "secret"], b"")
        await eventually(lambda: reasons(near) == {"not exposed": 1})
        assert not secret.messages


async def test_what_is_registered_leads_back_to_who_did() -> None:
    # A relay stores a return route, which is the claim of whoever registers: behind the link.
    async with AsyncExitStack() as stack:
        hub, near, third = await fresh(stack, "hub", "near", "third")
        secret = await Recorder.on(hub, "secret")
        await hub.start(StaticRelayService, address="static_relays")
        link, _ = await outside(hub, near, ["static_relays", "forward_to_x"])
        near.send(
            [link, "static_relays"], encode_string("x"), return_route=["secret", "1#127.0.0.1:1"]
        )
        await eventually(lambda: hub.has("forward_to_x"))
        by_third = await third.connect(
            (await hub.listen("tcp://127.0.0.1:0", expose=["forward_to_x"])).uri
        )
        third.send([by_third, "forward_to_x", "y"], b"")
        await eventually(lambda: near.dead_letters.total >= 1)
        assert not secret.messages
        assert not [each for each in hub.statistics().workers if each.kind == "DialledLink"]


async def test_the_error_names_the_address() -> None:
    async with AsyncExitStack() as stack:
        node, near = await fresh(stack, "node", "near")
        node.parts.undeliverable.error_replies.on = True
        await node.start(Forwarder, address="in")
        listener = await node.listen("tcp://127.0.0.1:0", expose=["in"], error_replies=True)
        assert isinstance(listener, TcpListener)
        link = await near.connect(listener.uri)
        with pytest.raises(Exception, match="not exposed") as error:
            await near.request([link, "in", "secret"], b"")
        assert not isinstance(error.value, NotExposed)  # it is told as an error reply
        assert "0#secret" in str(error.value)


async def test_one_address_is_not_several() -> None:
    async with Node("node") as node:
        with pytest.raises(TypeError, match="allow takes several addresses"):
            await node.listen("tcp://127.0.0.1:0", allow="echo")
        with pytest.raises(TypeError, match="allow takes several addresses"):
            await node.connect("tcp://127.0.0.1:1", allow=b"echo")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_replies_made_by_hand_leave_nothing_of_it() -> None:

    context = Context(trace="t", outside=Outside(1, frozenset[Address]().__contains__))
    message = Message(route("in => x"), route("link => a"), b"", None, context)
    assert message.forward().context is context
    assert message.reply(b"").context == Context(trace="t")


async def test_a_subscription_behind_a_relay_outlives_the_requests_of_others() -> None:
    # Its way back was named once, when it was made; those of requests come by the thousand.
    async with AsyncExitStack() as stack:
        hub, near, far = await fresh(stack, "hub", "near", "far")
        topic = await Recorder.on(far, "topic")
        await far.start(Echo, address="echo")
        await hub.start(Forwarder, address="relay")
        uri = (await far.listen("tcp://127.0.0.1:0", expose=["topic", "echo"])).uri
        to_far = await hub.connect(uri, max_returns=30)
        link, _ = await outside(hub, near, ["relay"], [str(to_far)])
        subscriber = await Recorder.on(near, "subscriber")
        subscriber.send([link, "relay", to_far, "topic"], b"subscribe")
        back = (await topic.next()).return_route
        for number in range(100):
            answer = await near.request([link, "relay", to_far, "echo"], b"%d" % number)
            assert answer.payload == b"%d" % number
        far.send(back, b"published")
        assert (await subscriber.next()).payload == b"published"
        assert not reasons(hub)
