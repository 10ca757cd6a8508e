"""What guards the nodes at both ends of a link: exposure at run time, error replies, access."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from onward.actors import GivenUp, Listener, MailboxOptions, Node, NodeLimits, Refused, Worker
from onward.actors.access import Access, from_source, local_only
from onward.protocol import (
    ERROR_SOURCE,
    Address,
    ErrorReply,
    Message,
    RequestTimeout,
    UnknownAddress,
    address,
    read_error_reply,
    route,
)
from tests.support.transports import Recorder, Stuck, eventually
from tests.support.virtual import virtual_time
from tests.support.workers import Forwarder

Uri: TypeAlias = Callable[[], str]


@pytest.fixture(params=["memory", "tcp"])
def uri(request: pytest.FixtureRequest) -> Uri:
    names = (f"memory://guards-{id(request):x}-{number}" for number in range(10))
    return lambda: next(names) if request.param == "memory" else "tcp://127.0.0.1:0"


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


async def told(recorder: Recorder) -> ErrorReply | None:
    return read_error_reply(await recorder.next())


def link_of(listener: Listener, node: Node) -> Address:
    """The one link that has come to a listener."""
    [cell] = node.parts.table.cell(listener.address).children or {}
    return cell.address


async def test_what_is_exposed_to_one_link(a: Node, b: Node, c: Node, uri: Uri) -> None:
    listener = await c.listen(uri())
    by_a, by_b = await a.connect(listener.uri), await b.connect(listener.uri)
    inner = await Recorder.on(c, "inner")
    links = [cell.address for cell in c.parts.table.cell(listener.address).children or ()]
    a.send([by_a, "inner"], b"too early")
    await eventually(lambda: reasons(c) == {"not exposed": 1})
    c.expose(links[0], "inner")
    a.send([by_a, "inner"], b"1")
    a.send([by_a, "inner"], b"2")
    assert [(await inner.next()).payload for _ in range(2)] == [b"1", b"2"]
    b.send([by_b, "inner"], b"not for this link")
    await eventually(lambda: reasons(c) == {"not exposed": 2})
    assert c.hide(links[0], "inner")
    a.send([by_a, "inner"], b"too late")
    await eventually(lambda: reasons(c) == {"not exposed": 3})


async def test_what_is_exposed_to_all_links_of_a_listener(
    a: Node, b: Node, c: Node, uri: Uri
) -> None:
    listener = await c.listen(uri())
    by_a = await a.connect(listener.uri)
    inner = await Recorder.on(c, "inner")
    c.expose(listener.address, "inner")
    by_b = await b.connect(listener.uri)  # one that comes later
    a.send([by_a, "inner"], b"a")
    assert (await inner.next()).payload == b"a"
    b.send([by_b, "inner"], b"b")
    assert (await inner.next()).payload == b"b"


async def test_what_the_end_that_connected_exposes(a: Node, c: Node, uri: Uri) -> None:
    listener = await c.listen(uri())
    link = await a.connect(listener.uri)
    inner = await Recorder.on(a, "inner")
    a.expose(link, "inner")
    c.send([link_of(listener, c), "inner"], b"hi")
    assert (await inner.next()).payload == b"hi"


async def test_a_name_that_is_used_again_is_not_exposed_again(a: Node, c: Node, uri: Uri) -> None:
    listener = await c.listen(uri())
    by_a = await a.connect(listener.uri)
    inner = await Recorder.on(c, "inner")
    c.expose(listener.address, "inner")
    for _ in range(2):
        a.send([by_a, "inner"], b"")
        await inner.next()
    await c.stop_worker("inner")
    await Recorder.on(c, "inner")
    a.send([by_a, "inner"], b"")
    await eventually(lambda: reasons(c) == {"not exposed": 1})


async def test_error_replies_stay_in_unless_the_link_lets_them(a: Node, c: Node, uri: Uri) -> None:
    c.parts.undeliverable.error_replies.on = True
    listener = await c.listen(uri(), expose=["gone"])
    link = await a.connect(listener.uri)
    asker = await Recorder.on(a, "asker")
    asker.send([link, "gone"], b"")
    await eventually(lambda: reasons(c) == {"no such worker": 1, "error replies are off": 1})
    assert not asker.messages
    with pytest.raises(RequestTimeout):
        await a.request([link, "gone"], b"", timeout=0.05)


async def test_a_link_that_lets_them_sends_none_of_a_node_that_has_none(
    a: Node, c: Node, uri: Uri
) -> None:
    listener = await c.listen(uri(), expose=["gone"], error_replies=True)
    link = await a.connect(listener.uri)
    asker = await Recorder.on(a, "asker")
    asker.send([link, "gone"], b"")
    await eventually(lambda: reasons(c) == {"no such worker": 1})
    assert c.statistics().error_replies == 0


async def test_each_reason_comes_back(a: Node, b: Node, c: Node, uri: Uri) -> None:
    b.parts.undeliverable.error_replies.on = c.parts.undeliverable.error_replies.on = True
    last = await c.listen(uri(), expose=["gone", "closed", "stuck"], error_replies=True)
    by_b = await b.connect(last.uri)
    first = await b.listen(uri(), expose=["relay"], allow=[by_b], error_replies=True)
    by_a = await a.connect(first.uri)
    b.spawn(Forwarder, address="relay")
    closed = Access(incoming=local_only)
    await c.start(Worker, address="closed", access=closed)
    asker = await Recorder.on(a, "asker")
    for name, reason in (
        ("gone", "no such worker"),
        ("closed", "denied"),
        ("secret", "not exposed"),
    ):
        asker.send([by_a, "relay", by_b, name], b"")
        assert await told(asker) == ErrorReply(reason, address(name), certain=True)
        with pytest.raises(Refused, match=rf"refused: 0#{name} \({reason}\)"):
            await a.request([by_a, "relay", by_b, name], b"")
    # Every worker that passed it on is on its return route.
    assert asker.messages[0].return_route == (by_a, address("relay"), by_b, ERROR_SOURCE)


async def test_one_is_no_reason_for_another(a: Node, c: Node, uri: Uri) -> None:
    a.parts.undeliverable.error_replies.on = c.parts.undeliverable.error_replies.on = True
    listener = await c.listen(uri(), expose=["gone"], error_replies=True)
    link = await a.connect(listener.uri, error_replies=True)
    asker = await Recorder.on(a, "asker")
    asker.send([link, "gone"], b"")
    await a.stop_worker("asker")
    await eventually(lambda: reasons(a) == {"no such worker": 1})
    assert reasons(c) == {"no such worker": 1}
    assert a.statistics().error_replies == 0


async def test_a_mailbox_that_stays_full_is_told_of(a: Node, c: Node) -> None:
    c.parts.undeliverable.error_replies.on = True
    listener = await c.listen(
        "tcp://127.0.0.1:0", expose=["stuck"], error_replies=True, stall_timeout=0.0
    )
    link = await a.connect(listener.uri)
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(1))
    asker = await Recorder.on(a, "asker")
    for _ in range(3):
        asker.send([link, "stuck"], b"")
    full = ErrorReply("mailbox full", address("stuck"), certain=True)
    assert await told(asker) == full
    stuck.go_on.set()


async def test_a_link_that_is_gone_is_told_of_at_home(a: Node, c: Node) -> None:
    a.parts.undeliverable.error_replies.on = True
    listener = await c.listen("tcp://127.0.0.1:0")
    link = await a.connect(listener.uri, reconnect=False, write_timeout=1.0)
    asker = await Recorder.on(a, "asker")
    asker.send([link], b"to the link itself")
    assert await told(asker) == ErrorReply("empty route", link, certain=True)
    await a.stop_worker(link)
    with pytest.raises(UnknownAddress):
        asker.send([link, "x"], b"")


async def test_what_lets_error_replies_is_forgotten_with_the_link(
    a: Node, c: Node, uri: Uri
) -> None:
    listener = await c.listen(uri(), error_replies=True)
    link = await a.connect(listener.uri, error_replies=True)
    assert a.parts.guards.lets_error_replies((link,))
    assert c.parts.guards.lets_error_replies((listener.address,))
    await listener.close()
    await eventually(lambda: not c.parts.guards.lets_error_replies((listener.address,)))
    await a.stop_worker(link) if a.has(link) else None
    assert not a.parts.guards.lets_error_replies((link,))


async def test_only_one_link_may_send(a: Node, b: Node, c: Node, uri: Uri) -> None:
    listener = await c.listen(uri(), expose=["inner"])
    by_a = await a.connect(listener.uri)
    link = link_of(listener, c)
    by_b = await b.connect(listener.uri)
    inner = Recorder()
    await c.start(lambda: inner, address="inner", access=Access(incoming=from_source(link)))
    b.send([by_b, "inner"], b"", return_route=[str(link)])  # whatever it says
    await eventually(lambda: reasons(c) == {"denied": 1})
    a.send([by_a, "inner"], b"hi")
    message: Message = await inner.next()
    assert message.source == link
    assert message.onward_route == route("inner")
    assert c.statistics().denied == 1


@virtual_time
async def test_which_answers_that_are_lost_another_node_is_told_of() -> None:
    class Answers(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, bytes(2000) if message.payload == b"large" else b"small")

    class Through(Worker):
        """Passes on; answers are to go by a worker that there is not."""

        def handle_message(self, message: Message) -> None:
            self.forward(message, address("gone"))

    async with Node() as a, Node(error_replies=True, limits=NodeLimits(payload=1000)) as c:
        await c.start(Answers, address="answers")
        await c.start(Through, address="through")
        listener = await c.listen(
            "memory://lost-answers", expose=["answers", "through"], error_replies=True
        )
        link = await a.connect(listener.uri)
        began = a.loop.time()
        with pytest.raises(GivenUp, match="payload too big"):
            await a.request([link, "answers"], b"large")
        assert a.loop.time() == began
        with pytest.raises(RequestTimeout):
            await a.request([link, "through", "answers"], b"", timeout=5)
        assert reasons(c) == {"payload too big": 1, "no such worker": 1}
        assert c.statistics().error_replies == 1
