from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node, OnFailure, Overflow, Supervision, Worker
from onward.actors.access import (
    Access,
    AccessDenied,
    allow_all,
    deny_all,
    from_source,
    local_only,
    not_,
    to_next,
)
from onward.actors.access._guard import LOG_INTERVAL, GuardedMailbox, OutboundGuard
from onward.actors.workers import Proxy
from onward.protocol import Address, MailboxFull, Message, UnknownAddress
from tests.support.workers import Echo, Failing, Forwarder, Recorder, spawn_worker, start_worker

A, B, C = (Address(0, name) for name in (b"a", b"b", b"c"))
CLOSED = Access(incoming=deny_all)
MUTE = Access(outgoing=deny_all)


async def recorder(node: Node, name: str | list[str], **options: Any) -> Recorder:
    made = Recorder()
    await node.start(lambda: made, address=name, **options)
    return made


async def test_who_may_send_and_who_may_not(node: Node) -> None:
    guarded = await recorder(node, "a", access=Access(incoming=from_source("b")))
    b, c = await recorder(node, "b"), await recorder(node, "c")
    b.send("a", b"from b")
    for send in (c.send, node.send):
        with pytest.raises(AccessDenied, match=r"^denied: 0#a$"):
            send("a", b"")
    with pytest.raises(AccessDenied):
        await c.send_wait("a", b"")
    with pytest.raises(AccessDenied):
        await node.request("a", b"")
    await asyncio.sleep(0)
    assert guarded.payloads == [b"from b"]
    assert node.statistics().denied == 4
    assert node.dead_letters.total == 0  # each sender was told


async def test_an_address_without_a_control_leads_to_the_worker_itself(node: Node) -> None:
    node.spawn(Recorder, address=["a", "b", "c"], access={B: CLOSED, C: MUTE})
    kinds = [type(node.parts.table.targets[each]) is GuardedMailbox for each in (A, B, C)]
    assert kinds == [False, True, False]
    assert node.ref("a").actor_urn == node.ref("b").actor_urn


async def test_nobody_but_the_node_says_who_the_source_is(node: Node) -> None:
    class Liar(Recorder):
        """Has messages that say they were sent to, and by, somebody else."""

        def lies(self) -> list[Callable[[], object]]:
            lie = Message((B, A), (B,), b"lie", B)
            return [
                lambda: self.forward(lie),
                lambda: self.forward(lie, B),
                lambda: self.step(lie),
                lambda: self.redirect(lie, (), B),
                lambda: self.route(lie._replace(onward_route=(A,))),
                lambda: self.reply(Message((B,), (A,), b"", B), b"lie", B),
                lambda: self.send("a", b"lie", return_route="b"),
                lambda: self.node.route(lie._replace(onward_route=(A,))),
            ]

    guarded = await recorder(node, "a", access=Access(incoming=from_source("b")))
    await recorder(node, "b")
    liar = spawn_worker(node, Liar(), ["c", "d"])
    lies = liar.lies()
    for lie in lies:
        with pytest.raises(AccessDenied):
            lie()
    with pytest.raises(AccessDenied):
        await node.route_wait(Message((A,), (), b"lie", B))
    await asyncio.sleep(0)
    assert guarded.payloads == []
    assert node.statistics().denied == len(lies) + 1


async def test_what_a_worker_may_send(node: Node) -> None:
    speaker = await recorder(node, "a", access=Access(outgoing=to_next("b")))
    b, _ = await recorder(node, "b"), await recorder(node, "c")
    node.spawn(Echo, address="echo")
    message = Message((A, B), (C,), b"1")
    speaker.forward(message)
    speaker.step(message)
    speaker.send("b", b"1")
    speaker.route(Message((B,), (), b"1"))
    speaker.redirect(message, ())
    await speaker.send_wait("b", b"1")
    speaker.reply(Message((A,), (B,), b""), b"1")
    denied: list[Callable[[], object]] = [
        lambda: speaker.forward(Message((A, C), (), b"")),
        lambda: speaker.step(Message((A, C), (), b"")),
        lambda: speaker.send("c", b""),
        lambda: speaker.route(Message((C,), (), b"")),
        lambda: speaker.redirect(message, "c"),
        lambda: speaker.reply(Message((A,), (C,), b""), b""),
    ]
    for send in denied:
        with pytest.raises(AccessDenied, match="0#c"):
            send()
    with pytest.raises(AccessDenied):
        await speaker.send_wait("c", b"")
    with pytest.raises(AccessDenied):
        await speaker.request("echo", b"")
    await asyncio.sleep(0)
    assert b.payloads == [b"1"] * 7
    assert node.statistics().denied == 8


async def test_a_request_that_a_worker_may_send(node: Node) -> None:
    asking = await recorder(node, "a", access=Access(outgoing=to_next("echo")))
    node.spawn(Echo, address="echo")
    assert (await asking.request("echo", b"hi")).payload == b"hi"


async def test_what_goes_nowhere_is_not_a_question_of_access(node: Node) -> None:
    mute = await recorder(node, "a", access=MUTE)
    with pytest.raises(Exception, match="the onward route is empty"):
        mute.route(Message((), (), b""))


async def test_each_address_has_its_own_say(node: Node) -> None:
    speaker = Recorder()
    access = {"inner": Access(outgoing=to_next("b")), "outer": MUTE}
    await node.start(lambda: speaker, address=["main", "inner", "outer"], access=access)
    b = await recorder(node, "b")
    inner, outer = Address(0, b"inner"), Address(0, b"outer")
    speaker.forward(Message((inner, B), (), b"1"))
    speaker.forward(Message((outer, B), (), b"2"), inner)
    speaker.send("b", b"3")  # from the primary address, which has no control
    with pytest.raises(AccessDenied):
        speaker.forward(Message((outer, B), (), b""))
    with pytest.raises(AccessDenied):
        speaker.reply(Message((inner,), (B,), b""), b"", outer)
    await asyncio.sleep(0)
    assert b.payloads == [b"1", b"2", b"3"]


async def test_an_address_that_is_not_named_sends_as_the_primary_one(node: Node) -> None:
    b = await recorder(node, "b")
    accesses: list[Access | dict[str, Access]] = [MUTE, {"proxy": MUTE}]
    for number, access in enumerate(accesses):
        # What a proxy sends comes from its inner address, which nobody could name.
        await node.start(lambda: Proxy("b"), address="proxy", access=access)
        with pytest.raises(AccessDenied):
            await node.request("proxy", b"")
        assert node.statistics().denied == number + 1
        await node.stop_worker("proxy")
    speaker = await recorder(node, ["a", "named"], access={"a": MUTE, "named": Access()})
    with pytest.raises(AccessDenied):
        speaker.forward(Message((A, B), (), b""), C)
    node.add_address("a", "c")
    with pytest.raises(AccessDenied):
        speaker.forward(Message((C, B), (), b""))
    speaker.forward(Message((Address(0, b"named"), B), (), b"1"))
    await asyncio.sleep(0)
    assert b.payloads == [b"1"]


async def test_no_return_route_says_which_address_sends(node: Node) -> None:
    await recorder(node, "e")
    access = {"c": MUTE, "d": Access(outgoing=to_next("e")), "a": Access()}
    speaker = await recorder(node, ["a", "c", "d"], access=access)
    e, d = Address(0, b"e"), Address(0, b"d")
    for claimed in (A, d):
        with pytest.raises(AccessDenied):
            speaker.step(Message((C, e), (claimed,), b""))
        with pytest.raises(AccessDenied):
            speaker.route(Message((e,), (claimed,), b""))
        with pytest.raises(AccessDenied):
            speaker.send("e", b"", return_route=(claimed,))
        with pytest.raises(AccessDenied):
            await speaker.send_wait("e", b"", return_route=(claimed,))
    speaker.step(Message((d, e), (C,), b""))
    speaker.step(Message((A, e), (C,), b""))
    speaker.send("e", b"")
    await speaker.send_wait("e", b"")
    assert node.statistics().denied == 8


async def test_a_control_is_asked_once_for_what_it_is_given_for(node: Node) -> None:
    asked: list[Message] = []

    def asks(message: Message) -> bool:
        asked.append(message)
        return True

    await recorder(node, "b")
    speaker = await recorder(node, ["a", "c"], access=Access(outgoing=asks))
    speaker.route(Message((B,), (C,), b""))
    speaker.forward(Message((C, B), (), b""))
    assert len(asked) == 2


async def test_addresses_that_come_later(node: Node) -> None:
    await recorder(node, "a", access=CLOSED)
    node.add_address("a", "b")
    with pytest.raises(AccessDenied):
        node.send("b", b"")
    mute = await recorder(node, "c", access=MUTE)
    node.add_address("c", "d")
    with pytest.raises(AccessDenied):
        mute.send("e", b"", return_route="d")
    node.remove_address("d")
    with pytest.raises(AccessDenied):  # now it is the primary address's
        mute.send("e", b"", return_route="d")
    node.remove_address("b")
    with pytest.raises(UnknownAddress):
        node.send("b", b"")


async def test_access_for_an_address_the_worker_does_not_have(node: Node) -> None:
    with pytest.raises(ValueError, match="access for 0#b, which the worker does not have"):
        node.spawn(Recorder, address="a", access={"b": CLOSED})

    def fails() -> Worker:
        raise KeyError("no worker")

    with pytest.raises(KeyError):
        node.spawn(fails, address="a", access=CLOSED)
    assert not node.has("a")
    assert node.parts.guards._guarded == {}


async def test_all_that_is_done_with_a_worker_is_done_with_a_guarded_one(node: Node) -> None:
    stopped: list[str] = []
    guarded = await recorder(node, "a", access=Access(deny_all, deny_all))
    assert node.has("a")
    assert node.parts.table.idle(A) is None  # nobody hands it anything past its guard
    assert [each.address for each in node.statistics().workers] == [A]
    node.ref("a").tell("Pykka's own way is a matter of who has the ref")
    node.watch("a", lambda: stopped.append("a"))
    assert guarded._out is not node.parts.router
    assert node.parts.table.idle(Address(0, b"nobody")) is None
    await node.stop_worker("a")
    assert stopped == ["a"]
    assert not node.has("a")
    assert node.parts.guards._guarded == {}


async def test_children_and_restarts_are_guarded_too(node: Node) -> None:
    class Parent(Worker):
        async def on_start(self) -> None:
            self.spawn(Recorder, address="b", access=CLOSED)
            await self.start_child(Recorder, address="c", access=CLOSED)

    await node.start(Parent, address="a")
    for name in ("b", "c"):
        with pytest.raises(AccessDenied):
            node.send(name, b"")
    restart = Supervision(OnFailure.RESTART)
    made: list[Failing] = []

    def make() -> Failing:
        made.append(Failing())
        return made[-1]

    await node.start(make, address="d", supervision=restart, access=MUTE)
    node.send("d", b"!")
    await asyncio.sleep(1)
    assert len(made) == 2
    with pytest.raises(AccessDenied):
        made[1].send("e", b"")
    await node.stop_worker("d")
    await node.stop_worker("a")
    assert node.parts.guards._guarded == {}


async def test_the_mailbox_behind_a_guard_has_its_limit_and_policy(node: Node) -> None:
    guarded = MailboxOptions(1, Overflow.WAIT)
    access = Access(incoming=not_(deny_all))
    slow = await recorder(node, "a", mailbox=guarded, access=access)
    node.send("a", b"1")
    with pytest.raises(MailboxFull):
        node.send("a", b"2")
    await node.send_wait("a", b"3")
    await asyncio.sleep(0)
    assert slow.payloads == [b"1", b"3"]


async def test_a_failing_control_denies_and_is_logged(
    caplog: pytest.LogCaptureFixture, node: Node
) -> None:
    def fails(message: Message) -> bool:
        raise ValueError("secret")

    node.spawn(Recorder, address="a", access=Access(incoming=fails))
    await asyncio.sleep(1.0)
    for _ in range(3):
        with pytest.raises(AccessDenied) as denied:
            node.send("a", b"")
        assert "secret" not in str(denied.value)
    [record] = caplog.records
    assert record.getMessage() == "the access control for messages to 0#a failed and denies"
    await asyncio.sleep(LOG_INTERVAL)
    with pytest.raises(AccessDenied):
        node.send("a", b"")
    assert len(caplog.records) == 2


async def test_a_control_that_decides_nothing_denies(caplog: pytest.LogCaptureFixture) -> None:
    async def later(_: Message) -> bool:
        return True

    async with Node() as node:
        access = Access(incoming=later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        node.spawn(Recorder, address="a", access=access)
        with pytest.raises(AccessDenied):
            node.send("a", b"")
    assert "later returned coroutine, not True or False" in caplog.text


async def test_a_forwarder_that_is_denied_has_not_failed(node: Node) -> None:
    node.spawn(Forwarder, address="forwarder")
    node.spawn(Recorder, address="a", access=CLOSED)
    with pytest.raises(AccessDenied):
        await node.request("forwarder => a", b"")
    node.send("forwarder => a", b"")
    await asyncio.sleep(0)
    assert node.dead_letters.by_reason == {"denied": 2}
    assert node.statistics().failed == 0


async def test_local_only(node: Node) -> None:
    class Outside(Recorder):
        leaves_node = True

    guarded = await recorder(node, "a", access=Access(incoming=local_only))
    link = await start_worker(node, Outside(), "link")
    inside = await recorder(node, "b", access=Access(outgoing=allow_all))
    inside.send("a", b"1")
    node.send("a", b"2")
    with pytest.raises(AccessDenied):
        link.send("a", b"")
    await node.stop_worker("b")
    with pytest.raises(AccessDenied):  # who has gone cannot be told from a link
        inside.send("a", b"3")
    await asyncio.sleep(0)
    assert guarded.payloads == [b"1", b"2"]


async def test_nothing_is_looked_up_through_what_a_guarded_worker_sends_by(node: Node) -> None:
    mute = await recorder(node, "a", access=MUTE)
    assert isinstance(mute._out, OutboundGuard)
    assert mute._out.table == {}
    with pytest.raises(AssertionError, match="unexpected target"):
        mute._out.schedule(node.parts.table.targets[A])
