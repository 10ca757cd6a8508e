"""Cases: only exposed addresses and return routes are reachable from outside."""

from __future__ import annotations

from typing import Final

from ...actors import Worker
from ...actors.testing import Probe
from ...protocol import MAX_ROUTE_LENGTH, DeliveryError, Message, RequestTimeout, route
from ._case import Case, case
from ._stage import RelayWorker, Stage, expect

__all__ = ["GATES"]

GATES: Final[list[Case]] = []


@case(GATES)
async def nothing_is_exposed(stage: Stage) -> None:
    """An address that is not exposed is unreachable; attempts are counted, and the link stays."""
    a, c = stage.a, stage.c
    inner, outer = await stage.probe(c, "inner"), await stage.probe(c, "outer")
    listener = await stage.listen(c, "outer")
    link = await stage.connect(a, listener.uri)
    for target in ("inner", "nobody", "1#127.0.0.1:1", str(listener.address)):
        a.send([link, target, "x"], b"let me in", return_route="x")
    await stage.refused(c, 4, "not exposed")
    a.send([link, "outer"], b"may I?")
    await stage.next(outer)
    expect(not inner.messages, "a message came to a worker that is not exposed")


@case(GATES)
async def what_connects_exposes_nothing(stage: Stage) -> None:
    """The connecting end exposes nothing by default."""
    a, c = stage.a, stage.c
    inner, target = await stage.probe(a, "inner"), await stage.probe(c, "c1")
    link = await stage.link("c1")
    a.send([link, "c1"], b"", return_route="elsewhere")
    far = (await stage.next(target)).return_route[0]
    c.send([far, "inner"], b"let me in")
    await stage.refused(a, 1, "not exposed")
    expect(not inner.messages, "a message came to a worker that is not exposed")


@case(GATES)
async def what_is_allowed_behind(stage: Stage) -> None:
    """A message from a link may go on to addresses allowed there or exposed, at both ends."""
    a, c = stage.a, stage.c
    allowed: list[Probe] = []
    for node in (a, c):
        await node.start(RelayWorker, address="relay")
        allowed.append(await stage.probe(node, "allowed"))
        await stage.probe(node, "inner")
    listener = await stage.listen(c, "relay", allow=["allow*"])
    there = await stage.connect(a, listener.uri, "relay", allow=["allow*"])
    a.send([there, "relay", "allowed"], b"", return_route="elsewhere")
    back = (await stage.next(allowed[1])).return_route[1]
    c.send([back, "relay", "allowed"], b"")
    await stage.next(allowed[0])
    for sender, link, far in ((a, there, c), (c, back, a)):
        sender.send([link, "relay", "inner"], b"let me in")
        sender.send([link, "allowed"], b"by the front door")
        await stage.refused(far, 2, "not exposed")


@case(GATES)
async def two_listeners_of_a_node(stage: Stage) -> None:
    """Each listener exposes its own addresses, and goes on when another is closed."""
    one, two = await stage.probe(stage.c, "one"), await stage.probe(stage.c, "two")
    listeners = [await stage.listen(stage.c, each) for each in ("one", "two")]
    to_one, to_two = [await stage.connect(stage.a, each.uri) for each in listeners]
    for link in (to_one, to_two):
        for target in ("one", "two"):
            stage.a.send([link, target], b"")
    await stage.refused(stage.c, 2, "not exposed")
    sources = {(await stage.next(each)).source for each in (one, two)}
    expect(len(sources) == 2, "the messages of two links came by one")
    await listeners[0].close()
    stage.a.send([to_two, "two"], b"still")
    expect((await stage.next(two)).payload == b"still", "another message came")
    expect(not one.messages[1:], "a message came to a worker that is not exposed there")


@case(GATES, "many")
async def two_links_of_a_node(stage: Stage) -> None:
    """Each link exposes its own addresses only, whatever another exposes."""
    one, two = await stage.probe(stage.a, "one"), await stage.probe(stage.a, "two")
    door = await stage.probe(stage.c, "door")
    listener = await stage.listen(stage.c, "door")
    for expose in ("one", "two"):
        link = await stage.connect(stage.a, listener.uri, expose)
        stage.a.send([link, "door"], b"", return_route="x")
    for _ in range(2):
        far = (await stage.next(door)).return_route[0]
        for target in ("one", "two"):
            stage.c.send([far, target], b"")
    await stage.refused(stage.a, 2, "not exposed")
    for each in (one, two):
        await stage.next(each)
        expect(not each.messages[1:], "a message came by a link that does not expose its worker")


@case(GATES)
async def an_exposed_address_nobody_has(stage: Stage) -> None:
    """A message to an exposed address without a worker is a dead letter."""
    link = await stage.link("gone")
    stage.a.send([link, "gone"], b"")
    await stage.refused(stage.c, 1, "no such worker")


@case(GATES)
async def the_way_back_is_open(stage: Stage) -> None:
    """The sender of a message can be answered, repeatedly."""
    a, c = stage.a, stage.c
    asker, target = await stage.probe(a, "asker"), await stage.probe(c, "c1")
    link = await stage.link("c1")
    asker.send([link, "c1"], b"question")
    question = await stage.next(target)
    for payload in (b"1", b"2"):
        target.reply(question, payload)
        expect((await stage.next(asker)).payload == payload, "another answer came")


@case(GATES)
async def the_way_back_leads_no_further(stage: Stage) -> None:
    """Only the whole return route is open: a relay on it cannot be used for other routes."""
    a, c = stage.a, stage.c
    asker, secret = await stage.probe(a, "asker"), await stage.probe(a, "secret")
    await a.start(RelayWorker, address="relay")
    target = await stage.probe(c, "c1")
    link = await stage.link("c1")
    asker.send(["relay", link, "c1"], b"question")
    question = await stage.next(target)
    far = question.return_route[0]
    for onward in ("relay => secret", "relay", "asker", "relay => asker => secret"):
        c.send([far, *route(onward)], b"let me in")
    await stage.refused(a, 4, "not exposed")
    target.reply(question, b"answer")
    expect((await stage.next(asker)).payload == b"answer", "another answer came")
    expect(not secret.messages, "a message came to a worker that is not exposed")


@case(GATES)
async def a_request_takes_one_answer(stage: Stage) -> None:
    """A request is answered once; later messages are refused."""

    class Twice(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"1")
            self.reply(message, b"2")

    await stage.c.start(Twice, address="twice")
    link = await stage.link("twice")
    answer = await stage.ask(stage.a, [link, "twice"], b"")
    expect(answer.payload in {b"1", b"2"}, f"the answer is {answer.payload!r}")
    await stage.refused(stage.a, 1, "not exposed")


@case(GATES)
async def error_replies(stage: Stage) -> None:
    """An error reply crosses where the listener allows it, and nowhere else."""
    open_handed = await stage.node("open-handed", error_replies=True)
    listeners = [
        await stage.listen(open_handed, "gone", error_replies=lets) for lets in (True, False)
    ]
    links = [await stage.connect(stage.a, listener.uri) for listener in listeners]
    try:
        await stage.ask(stage.a, [links[0], "gone"], b"")
    except RequestTimeout:
        raise AssertionError("the error reply did not come") from None
    except DeliveryError:
        pass
    else:
        raise AssertionError("there was an answer that is no error reply")
    stage.a.send([links[1], "gone"], b"", return_route="nobody")
    reason = "error replies are off"
    await stage.until(
        lambda: reason in open_handed.dead_letters.by_reason, "the error reply was not kept in"
    )


@case(GATES)
async def routes_that_grew_too_long(stage: Stage) -> None:
    """A message with a return route that is too long with one more address is a dead letter."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    stage.a.send([link, "c1"], b"", return_route=["x"] * MAX_ROUTE_LENGTH)
    await stage.until(
        lambda: stage.a.dead_letters.total + stage.c.dead_letters.total == 1,
        "there is no dead letter",
    )
    expect(not target.messages, "it was delivered")
