"""The ends of a circuit: credit, drain, tags, dispositions, detach and close, loss and resume."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cbor2 import dumps

from onward.protocol.dispatch import (
    CIRCUIT_END,
    MAX_CREDIT,
    MAX_UNSETTLED,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDown,
    CircuitDrained,
    CircuitEnd,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitLimits,
    CircuitMisuse,
    CircuitRefused,
    CircuitTransfer,
    CircuitUnresolved,
    DetachKind,
    EndInput,
    EndState,
    UnsettledMap,
    parse_circuit_frame,
    serialize_circuit_frame,
)
from tests.protocol.dispatch.circuit_chain import KEY, LIMITS, Chain, tied

LOST, CLOSED, DETACHED = DetachKind.LOST, DetachKind.CLOSED, DetachKind.DETACHED


def run(chain: Chain) -> None:
    chain.flush()
    chain.run()


def transfers(chain: Chain) -> list[CircuitTransfer]:
    return [event for event in chain.seen(chain.taker) if isinstance(event, CircuitTransfer)]


def unsettled(chain: Chain) -> UnsettledMap:
    """Return what both ends have as unsettled."""
    assert chain.maker.unsettled == chain.taker.unsettled
    return chain.maker.unsettled


def states(chain: Chain) -> list[EndState]:
    return [end.state for end in chain.ends]


@pytest.mark.parametrize("producer", [True, False])
@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_both_ends_are_attached(nodes: int, producer: bool) -> None:
    chain = Chain(nodes, producer=producer)
    chain.attach()
    assert chain.ends[0].state is EndState.ATTACHING
    chain.run()
    assert states(chain) == [EndState.ATTACHED] * 2
    assert chain.events == ([CircuitAttached(4)], [])


def test_credit_reaches_the_producer_to_the_unit() -> None:
    chain = tied(3)
    assert not chain.maker.can_send
    for credit in (7, 7):
        chain.taker.grant(credit, 0.0)
        run(chain)
    assert chain.seen(chain.maker) == [CircuitFlow(7), CircuitFlow(7)]
    assert chain.maker.credit == chain.taker.credit == 14
    assert chain.maker.can_send
    for number in range(14):
        chain.maker.send(b"%d" % number, b"x", 0.0, settled=True)
    with pytest.raises(CircuitMisuse, match="there is no credit"):
        chain.maker.send(b"15", b"x", 0.0)
    run(chain)
    assert [each.tag for each in transfers(chain)] == [b"%d" % n for n in range(14)]
    assert chain.taker.credit == 0


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_drain_gives_back_what_is_not_used(nodes: int) -> None:
    chain = tied(nodes)
    chain.taker.grant(20, 0.0, drain=True)
    run(chain)
    assert chain.maker.draining
    for number in range(6):
        chain.maker.send(b"%d" % number, b"", 0.0, settled=True)
    chain.maker.drained(0.0)
    run(chain)
    assert len(transfers(chain)) == 6
    assert chain.seen(chain.taker)[-1] == CircuitDrained(14)
    assert (chain.taker.credit, chain.taker.draining, chain.maker.draining) == (0, False, False)
    chain.taker.grant(2, 0.0)
    run(chain)
    chain.maker.send(b"more", b"", 0.0)
    run(chain)
    assert transfers(chain)[-1].tag == b"more"


def test_dispositions_pass_with_their_states() -> None:
    chain = tied()
    chain.taker.grant(3, 0.0)
    run(chain)
    for tag in (b"a", b"b", bytes(32)):
        chain.maker.send(tag, b"", 0.0)
    run(chain)
    chain.taker.dispose(b"a", 0.0, b"rejected: why", settled=True)
    chain.taker.dispose(b"b", 0.0, b"received", settled=False)
    run(chain)
    assert chain.seen(chain.maker)[1:] == [
        CircuitDisposition(b"a", b"rejected: why", settled=True),
        CircuitDisposition(b"b", b"received"),
    ]
    assert unsettled(chain) == ((b"b", b"received"), (bytes(32), b""))
    # The producer settles last.
    chain.maker.dispose(b"b", 0.0)
    run(chain)
    assert chain.seen(chain.taker)[-1] == CircuitDisposition(b"b", b"", settled=True)
    assert unsettled(chain) == ((bytes(32), b""),)
    # A state of the producer's does not replace the consumer's.
    chain.maker.dispose(bytes(32), 0.0, b"mine", settled=False)
    run(chain)
    assert unsettled(chain) == ((bytes(32), b""),)


def test_what_both_settle_at_once_is_ignored() -> None:
    chain = tied()
    chain.taker.grant(1, 0.0)
    run(chain)
    chain.maker.send(b"a", b"", 0.0)
    run(chain)
    chain.maker.dispose(b"a", 0.0)
    chain.taker.dispose(b"a", 0.0)
    run(chain)
    assert (chain.maker.ignored, chain.taker.ignored) == (1, 1)
    with pytest.raises(CircuitMisuse, match="the delivery is settled"):
        chain.taker.dispose(b"a", 0.0)


def test_a_delivery_in_parts_uses_one_credit() -> None:
    chain = tied()
    chain.taker.grant(2, 0.0)
    run(chain)
    chain.maker.send(b"a", b"1", 0.0, more=True)
    with pytest.raises(CircuitMisuse, match="another delivery is unfinished"):
        chain.maker.send(b"b", b"", 0.0)
    assert not chain.maker.can_send
    chain.maker.send(b"a", b"2", 0.0)
    chain.maker.send(b"b", b"3", 0.0, more=True)
    chain.maker.send(b"b", b"", 0.0, aborted=True)
    run(chain)
    assert [(each.payload, each.more, each.aborted) for each in transfers(chain)] == [
        (b"1", True, False),
        (b"2", False, False),
        (b"3", True, False),
        (b"", False, True),
    ]
    assert chain.taker.credit == 0
    assert unsettled(chain) == ((b"a", b""),)


def test_a_delivery_may_be_settled_before_its_last_part() -> None:
    chain = tied()
    chain.taker.grant(1, 0.0)
    run(chain)
    chain.maker.send(b"a", b"1", 0.0, more=True)
    run(chain)
    chain.taker.dispose(b"a", 0.0, b"rejected")
    run(chain)
    chain.maker.send(b"a", b"", 0.0, aborted=True)
    run(chain)
    assert unsettled(chain) == ()


def test_tags_are_bounded_and_in_use_once() -> None:
    chain = tied()
    chain.taker.grant(9, 0.0)
    run(chain)
    with pytest.raises(CircuitFrameError, match="the tag of 33 bytes"):
        chain.maker.send(bytes(33), b"", 0.0)
    chain.maker.send(b"a", b"", 0.0)
    with pytest.raises(CircuitMisuse, match="the tag is in use"):
        chain.maker.send(b"a", b"", 0.0, settled=True)
    assert chain.maker.credit == 8


def test_unsettled_deliveries_are_bounded_by_both_ends() -> None:
    chain = tied()
    chain.taker.grant(9, 0.0)
    run(chain)
    for number in range(4):
        assert chain.maker.can_send
        chain.maker.send(b"%d" % number, b"", 0.0)
    assert not chain.maker.can_send
    with pytest.raises(CircuitMisuse, match="too many deliveries are unsettled"):
        chain.maker.send(b"4", b"", 0.0)
    chain.maker.send(b"4", b"", 0.0, settled=True)
    run(chain)
    chain.taker.dispose(b"2", 0.0)
    run(chain)
    assert chain.maker.can_send


def test_the_limit_of_unsettled_deliveries_is_the_lower_one_of_both_ends() -> None:
    for theirs, lower in ((5, 5), (12, 9)):
        end = CircuitEnd(producer=True, key=KEY, limits=CircuitLimits(max_unsettled=9))
        assert end.limit == 9
        end.accept(CircuitAttach("orders", False, KEY, limit=theirs), 0.0)
        assert end.limit == lower


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("how", [CLOSED, DETACHED])
def test_a_detach_stays_a_detach_and_a_close_a_close(place: int, how: DetachKind) -> None:
    chain = tied(3)
    chain.ends[place].detach(0.0, closed=how is CLOSED, condition="amqp:x", description="text")
    assert chain.ends[place].state is EndState.DETACHING
    run(chain)
    assert chain.events[1 - place] == [CircuitDown(how, "amqp:x", "text")]
    assert chain.events[place] == [CircuitDown(how)]
    after = EndState.ENDED if how is CLOSED else EndState.SUSPENDED
    assert states(chain) == [after] * 2
    assert chain.ends[0].get_timer() is None


def test_two_ends_may_detach_at_once() -> None:
    chain = tied(2)
    chain.ends[0].detach(0.0, closed=True)
    chain.ends[1].detach(0.0)
    run(chain)
    assert states(chain) == [EndState.ENDED] * 2
    assert chain.downs(chain.ends[0]) == [CircuitDown(CLOSED)]


def test_an_end_that_is_not_resumable_is_over() -> None:
    chain = tied(1, resumable=False)
    chain.cut(0)
    chain.run()
    for end in chain.ends:
        assert end.state is EndState.ENDED
        assert chain.downs(end) == [CircuitDown(LOST, "route-lost")]
    with pytest.raises(CircuitMisuse, match="it is ended"):
        chain.ends[0].attach("orders", 0.0)


@pytest.mark.parametrize("link", [0, 1, 2, 3])
def test_a_loss_is_told_in_both_directions(link: int) -> None:
    chain = tied(3)
    chain.taker.grant(5, 0.0)
    run(chain)
    chain.maker.send(b"a", b"", 0.0)
    chain.maker.send(b"b", b"", 0.0, more=True)
    run(chain)
    chain.cut(link)
    chain.run()
    for end in chain.ends:
        assert chain.downs(end) == [CircuitDown(LOST, "route-lost", "", b"b")]
        assert (end.state, end.credit) == (EndState.SUSPENDED, 0)
        assert end.unsettled == ((b"a", b""),)
        assert end.lost() == ()


def test_a_resumed_circuit_agrees_on_what_is_unsettled() -> None:
    chain = tied(2)
    chain.taker.grant(4, 0.0)
    run(chain)
    for tag in (b"kept", b"settled", b"late", b"lost"):
        chain.maker.send(tag, b"", 0.0)
        if tag != b"lost":
            run(chain)
    chain.flush()  # the transfer of `lost` is under way
    chain.taker.dispose(b"kept", 0.0, b"received", settled=False)
    chain.taker.dispose(b"settled", 0.0, b"accepted")
    chain.flush()
    chain.cut(1)
    chain.links[0, 1].clear()
    chain.run()
    assert chain.maker.unsettled != chain.taker.unsettled
    for events in chain.events:
        events.clear()
    chain.attach()
    assert chain.maker.state is EndState.RESUMING
    chain.run()
    assert unsettled(chain) == ((b"kept", b"received"), (b"late", b""))
    assert chain.seen(chain.maker)[1:] == [
        CircuitDisposition(b"kept", b"received"),
        CircuitUnresolved(b"settled"),
        CircuitUnresolved(b"lost"),
    ]
    assert chain.seen(chain.taker) == []


def test_what_the_producer_has_settled_is_settled_when_resumed() -> None:
    chain = tied(1, producer=False)
    chain.taker.grant(1, 0.0)
    run(chain)
    chain.maker.send(b"a", b"", 0.0)
    run(chain)
    chain.maker.dispose(b"a", 0.0)
    chain.cut(1)
    chain.run()
    chain.attach()
    chain.run()
    assert chain.seen(chain.taker)[-1] == CircuitDisposition(b"a", b"", settled=True)
    assert unsettled(chain) == ()


def test_an_end_that_cannot_resume_has_no_map() -> None:
    end = CircuitEnd(producer=False, key=KEY)
    end.accept(CircuitAttach("orders", True, KEY, unsettled=((b"a", b""),)), 0.0)
    [data] = end.data_to_send()
    assert parse_circuit_frame(data) == CircuitAttached(MAX_UNSETTLED)
    assert end.data_to_send() == []


def test_a_refused_attach_is_over_and_a_refused_resume_may_be_tried_again() -> None:
    refused = CircuitRefused("no-route", "none")
    end = CircuitEnd(producer=True, key=KEY, resumable=True)
    end.attach("orders", 0.0)
    assert end.receive(serialize_circuit_frame(refused), 0.0) == (refused,)
    assert end.state is EndState.ENDED
    chain = tied()
    chain.cut(0)
    end = chain.ends[0]
    end.attach("orders", 0.0)
    assert end.receive(serialize_circuit_frame(refused), 0.0) == (refused,)
    assert states(chain)[0] is EndState.SUSPENDED
    end.detach(0.0, closed=True)
    assert states(chain)[0] is EndState.ENDED
    end.data_to_send()
    with pytest.raises(CircuitMisuse):
        end.detach(0.0)
    assert end.data_to_send() == []


@pytest.mark.parametrize("answer", [CircuitAttached(), CircuitRefused("no")])
def test_a_detach_may_cross_the_answer(answer: CircuitFrame) -> None:
    end = CircuitEnd(producer=True, key=KEY)
    end.attach("orders", 0.0)
    end.detach(1.0)
    events = end.receive(serialize_circuit_frame(answer), 1.0)
    if isinstance(answer, CircuitAttached):
        assert (events, end.state) == ((answer,), EndState.DETACHING)
        events = end.receive(serialize_circuit_frame(CircuitDetach(DETACHED)), 1.0)
    assert [type(event) for event in events] == [CircuitDown]
    assert end.state is EndState.ENDED


def test_an_end_that_hears_nothing_gives_up() -> None:
    end = CircuitEnd(producer=True, key=KEY, resumable=True)
    assert end.get_timer() is None
    assert end.due(99.0) == end.lost() == ()
    end.attach("orders", 0.0)
    assert end.get_timer() == 10.0
    assert end.due(9.0) == ()
    assert end.due(10.0) == (CircuitDown(LOST, "answer-timeout"),)
    assert parse_circuit_frame(end.data_to_send()[-1]) == CircuitDetach(LOST, "answer-timeout")


def test_an_idle_circuit_is_kept_by_pings_and_lost_without() -> None:
    chain = tied(2)
    for _ in range(9):
        chain.wait(100.0)
        chain.run()
    assert chain.events == ([], [])
    assert chain.ends[0].state is EndState.ATTACHED
    # The other end hears nothing of one that does not run.
    end = chain.ends[1]
    assert end.due(1100.0) == ()
    assert end.due(1200.0) == (CircuitDown(LOST, "idle"),)


def producer(credit: int = 0) -> CircuitEnd:
    end = CircuitEnd(producer=True, key=KEY, limits=LIMITS)
    end.accept(CircuitAttach("orders", False, KEY), 0.0)
    if credit:
        end.receive(serialize_circuit_frame(CircuitFlow(credit)), 0.0)
    return end


def consumer(credit: int = 0) -> CircuitEnd:
    end = CircuitEnd(producer=False, key=KEY, limits=LIMITS)
    end.accept(CircuitAttach("orders", True, KEY), 0.0)
    end.grant(credit, 0.0)
    return end


def asking() -> CircuitEnd:
    end = CircuitEnd(producer=True, key=KEY)
    end.attach("orders", 0.0)
    return end


PART = CircuitTransfer(b"p", b"", more=True)


@pytest.mark.parametrize(
    ("make", "frames", "condition"),
    [
        (lambda: producer(1), [CircuitFlow(MAX_CREDIT)], "credit-exceeded"),
        (lambda: producer(1), [CircuitDrained(0)], "bad-frame"),
        (lambda: producer(1), [PART], "bad-frame"),
        (lambda: producer(1), [CircuitAttached()], "bad-frame"),
        (lambda: producer(1), [CircuitAttach("x", False, KEY)], "bad-frame"),
        (asking, [CircuitFlow(1)], "bad-frame"),
        (asking, [CircuitDetach(CLOSED)], "bad-frame"),
        (lambda: consumer(1), [CircuitFlow(1)], "bad-frame"),
        (lambda: consumer(1), [CircuitRefused("x")], "bad-frame"),
        (lambda: consumer(1), [CircuitDrained(2)], "credit-exceeded"),
        (lambda: consumer(0), [PART], "credit-exceeded"),
        (lambda: consumer(2), [PART, CircuitTransfer(b"q", b"")], "bad-frame"),
        (lambda: consumer(2), [CircuitTransfer(b"q", b"")] * 2, "bad-frame"),
        (
            lambda: consumer(9),
            [CircuitTransfer(bytes((n,)), b"") for n in range(5)],
            "unsettled-exceeded",
        ),
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_the_circuit(
    make: Callable[[], CircuitEnd], frames: list[CircuitFrame], condition: str
) -> None:
    end = make()
    end.data_to_send()
    for frame in frames[:-1]:
        end.receive(serialize_circuit_frame(frame), 0.0)
    [down] = end.receive(serialize_circuit_frame(frames[-1]), 0.0)
    assert isinstance(down, CircuitDown)
    assert (down.how, down.condition) == (LOST, condition)
    [data] = end.data_to_send()
    told = parse_circuit_frame(data)
    assert told == CircuitDetach(LOST, down.condition, down.description)
    assert end.receive(b"", 0.0) == ()
    assert end.ignored == 1


def test_what_is_no_frame_ends_the_circuit_and_a_later_version_does_not() -> None:
    end = consumer()
    assert end.receive(dumps([2, 9]), 0.0) == ()
    assert end.ignored == 1
    assert end.receive(serialize_circuit_frame(CircuitAlive()), 0.0) == ()
    assert end.receive(b"\xff", 0.0) == (
        CircuitDown(LOST, "bad-frame", "a simple value that is not false, true or null"),
    )


def test_an_end_does_what_its_role_and_state_permit() -> None:
    with pytest.raises(CircuitMisuse, match="not on this circuit: it is the producer"):
        producer().grant(1, 0.0)
    with pytest.raises(CircuitMisuse, match="it is the consumer"):
        consumer().send(b"", b"", 0.0)
    with pytest.raises(CircuitMisuse, match="it is attaching"):
        asking().drained(0.0)
    with pytest.raises(CircuitMisuse, match="it is attaching") as caught:
        asking().dispose(b"", 0.0)
    assert caught.value.reason == "it is attaching"
    with pytest.raises(CircuitMisuse, match="a credit of over 4294967295"):
        consumer(1).grant(MAX_CREDIT, 0.0)
    with pytest.raises(CircuitMisuse, match="it is attached"):
        producer().accept(CircuitAttach("orders", False, KEY), 0.0)


@pytest.mark.parametrize(
    "attach", [CircuitAttach("x", True, KEY), CircuitAttach("x", False, KEY[::-1])]
)
def test_an_attach_for_another_end_is_not_accepted(attach: CircuitAttach) -> None:
    end = CircuitEnd(producer=True, key=KEY)
    with pytest.raises(CircuitFrameError, match="the attach is not for this end"):
        end.accept(attach, 0.0)
    assert end.state is EndState.IDLE


def test_the_smaller_limit_counts() -> None:
    end = CircuitEnd(producer=True, key=KEY, limits=CircuitLimits(max_unsettled=9))
    end.accept(CircuitAttach("orders", False, KEY, limit=1), 0.0)
    end.receive(serialize_circuit_frame(CircuitFlow(5)), 0.0)
    end.send(b"a", b"", 0.0)
    with pytest.raises(CircuitMisuse, match="too many deliveries are unsettled"):
        end.send(b"b", b"", 0.0)


def test_the_table_has_every_state_and_input() -> None:
    assert {state for state, _ in CIRCUIT_END} | {EndState.ENDED} == set(EndState)
    assert {given for _, given in CIRCUIT_END} == set(EndInput)
