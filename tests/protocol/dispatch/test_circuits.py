"""The circuits of one node: what passes, what is refused, what is told to which side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cbor2 import dumps

from onward.protocol.dispatch import (
    CIRCUIT_PAIR,
    MAX_CREDIT,
    MAX_PATH,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitCondition,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitFrame,
    CircuitLimits,
    CircuitOpened,
    CircuitPool,
    CircuitRefused,
    Circuits,
    CircuitSend,
    CircuitSide,
    CircuitTransfer,
    DetachKind,
    PairInput,
    PairState,
    parse_circuit_frame,
    serialize_circuit_frame,
)

UP, DOWN = CircuitSide.UPSTREAM, CircuitSide.DOWNSTREAM
OWN = b"node"
ATTACH = CircuitAttach("orders", True, bytes(16))
LOST = DetachKind.LOST
Told = list[tuple[CircuitSide, CircuitFrame]]


def told(sends: tuple[CircuitSend, ...]) -> Told:
    return [(send.side, parse_circuit_frame(send.data)) for send in sends]


def opened(circuits: Circuits, up: str = "up", down: str = "down", *, producer: bool = True) -> int:
    attach = replace(ATTACH, producer=producer)
    result = circuits.open(attach, up, down, 0.0)
    assert isinstance(result, CircuitOpened)
    return result.number


def pass_on(
    circuits: Circuits, number: int, side: CircuitSide, *frames: CircuitFrame, now: float = 0.0
) -> None:
    """Give frames of one side to a node, and check that they leave it as they came."""
    for frame in frames:
        data = serialize_circuit_frame(frame)
        sends = circuits.receive(number, side, data, now)
        assert sends == (CircuitSend(number, side.other, data),)


def attached(circuits: Circuits, *, producer: bool = True) -> int:
    number = opened(circuits, producer=producer)
    pass_on(circuits, number, DOWN, CircuitAttached())
    return number


def broken(circuits: Circuits, number: int, side: CircuitSide, frame: CircuitFrame) -> str:
    """Give a frame that may not come, and return condition and description that both are told."""
    sends = circuits.receive(number, side, serialize_circuit_frame(frame), 0.0)
    texts = {
        f"{one.condition}: {one.description}"
        for _, one in told(sends)
        if isinstance(one, CircuitRefused | CircuitDetach)
    }
    assert [side for side, _ in told(sends)] == [UP, DOWN]
    assert circuits.get_timer() is None
    [text] = texts
    return text


def test_an_attach_is_passed_on_with_this_node_in_its_path() -> None:
    circuits = Circuits(OWN)
    result = circuits.open(replace(ATTACH, path=b"else"), "up", "down", 0.0)
    assert isinstance(result, CircuitOpened)
    assert parse_circuit_frame(result.attach) == replace(ATTACH, path=b"elsenode")
    assert circuits.peers(result.number) == ("up", "down")
    assert circuits.statistics().open == {PairState.ATTACHING: 1}


@pytest.mark.parametrize("producer", [True, False])
def test_all_frames_pass_as_they_came(producer: bool) -> None:
    circuits = Circuits(OWN)
    number = attached(circuits, producer=producer)
    maker, taker = (UP, DOWN) if producer else (DOWN, UP)
    pass_on(circuits, number, taker, CircuitFlow(3, drain=True))
    pass_on(
        circuits,
        number,
        maker,
        CircuitTransfer(b"a", b"1", more=True),
        CircuitTransfer(b"a", b"2"),
        CircuitTransfer(b"b", b"", aborted=True),
        CircuitDisposition(b"a", b"state"),
        CircuitDrained(1),
        CircuitAlive(),
    )
    pass_on(circuits, number, taker, CircuitDisposition(b"a", b"x", settled=True), CircuitAlive())
    pass_on(circuits, number, UP, CircuitDetach(DetachKind.DETACHED, "c", "d"))
    assert circuits.statistics().open == {PairState.DETACHING: 1}
    pass_on(circuits, number, DOWN, CircuitAlive(), CircuitDisposition(b"a"))
    pass_on(circuits, number, DOWN, CircuitDetach(DetachKind.CLOSED))
    statistics = circuits.statistics()
    assert (statistics.open, statistics.ended) == ({}, {PairState.DETACHED: 1})
    with pytest.raises(KeyError):
        circuits.peers(number)


def test_other_encodings_pass_as_they_came() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    # The same frame with a longer head: an array of indefinite length.
    data = b"\x9f\x01\x09\xff"
    assert circuits.receive(number, UP, data, 0.0) == (CircuitSend(number, DOWN, data),)


@pytest.mark.parametrize(
    ("path", "down", "condition"),
    [
        (b"", None, "no-route"),
        (b"elsenode", "down", "route-loop"),
        (b"elsenode", None, "route-loop"),
        (b"else" * MAX_PATH, "down", "route-loop"),
    ],
)
def test_an_attach_is_refused(path: bytes, down: str | None, condition: str) -> None:
    circuits = Circuits(OWN)
    refused = CircuitRefused(condition)
    assert circuits.open(replace(ATTACH, path=path), "up", down, 0.0) == refused
    assert circuits.statistics().refused == {condition: 1}
    assert circuits.get_timer() is None


def test_a_digest_is_found_at_whole_places_only() -> None:
    path = b"xxnodexx"
    opened = Circuits(OWN).open(replace(ATTACH, path=path), "up", "down", 0.0)
    assert isinstance(opened, CircuitOpened)


def test_circuits_are_bounded_by_node_and_by_peer() -> None:
    circuits = Circuits(OWN, CircuitLimits(max_circuits=3, max_peer_circuits=2))
    first = opened(circuits, "a", "b")
    opened(circuits, "a", "c")
    full = CircuitRefused("peer-circuits-full")
    assert circuits.open(ATTACH, "a", "d", 0.0) == full
    assert circuits.open(ATTACH, "d", "a", 0.0) == full
    opened(circuits, "d", "e")
    assert circuits.open(ATTACH, "f", "g", 0.0) == CircuitRefused("circuits-full")
    pass_on(circuits, first, DOWN, CircuitRefused("no"))
    opened(circuits, "a", "f")
    assert circuits.statistics().refused == {"peer-circuits-full": 2, "circuits-full": 1}
    assert circuits.statistics().ended == {PairState.REFUSED: 1}


def test_each_source_has_a_share_of_a_node_and_of_a_side() -> None:
    limits = CircuitLimits(
        max_circuits=12, max_peer_circuits=8, max_share=25, max_neighbour_share=50
    )
    circuits = Circuits(OWN, limits)
    own, full = replace(ATTACH, source=b"s" * 8), CircuitRefused("circuit-share-full")
    assert isinstance(circuits.open(own, "a", "x", 0.0), CircuitOpened)
    first = circuits.open(own, "b", "x", 0.0)
    assert isinstance(first, CircuitOpened)
    # 25 % of the 8 of a side, and of the 12 of the node.
    assert circuits.open(own, "c", "x", 0.0) == full
    assert isinstance(circuits.open(own, "c", "y", 0.0), CircuitOpened)
    assert circuits.open(own, "c", "z", 0.0) == full
    # A neighbour that says the same source takes nothing of it, and has 50 % for all sources.
    for source in (b"s" * 8, b"t" * 8, b"", b""):
        attach = replace(ATTACH, source=source)
        assert isinstance(circuits.open(attach, "n", "x", 0.0, neighbour=True), CircuitOpened)
    assert circuits.open(ATTACH, "n", "x", 0.0, neighbour=True) == full
    # A program has no share, and what has ended counts no more.
    assert isinstance(circuits.open(ATTACH, "p", "x", 0.0), CircuitOpened)
    pass_on(circuits, first.number, DOWN, CircuitRefused("no"))
    assert isinstance(circuits.open(own, "c", "x", 0.0), CircuitOpened)
    assert circuits.statistics().refused == {"circuit-share-full": 3}


def test_sources_that_are_not_authenticated_have_a_share_together() -> None:
    limits = CircuitLimits(
        max_circuits=100,
        max_peer_circuits=10,
        max_share=50,
        max_anonymous_share=75,
        max_neighbour_share=50,
    )
    circuits, full = Circuits(OWN, limits), CircuitRefused("circuit-share-full")

    def open_from(
        peer: str, number: int, *, anonymous: bool = True, neighbour: bool = False
    ) -> CircuitOpened | CircuitRefused:
        attach = replace(ATTACH, source=bytes(7) + bytes([number]), anonymous=anonymous)
        return circuits.open(attach, peer, "x", 0.0, neighbour=neighbour)

    # 75 % of the 50 % of the 10 that a neighbour has.
    for number in range(3):
        assert isinstance(open_from("n", number, neighbour=True), CircuitOpened)
    assert open_from("n", 3, neighbour=True) == full
    assert isinstance(open_from("n", 4, anonymous=False, neighbour=True), CircuitOpened)
    circuits.close()
    # 75 % of the 10 of all that are here, each with a connection of its own.
    first = open_from("a", 0)
    assert isinstance(first, CircuitOpened)
    for number in range(1, 7):
        assert isinstance(open_from(f"client {number}", number), CircuitOpened)
    assert open_from("client 7", 7) == full
    # One that is authenticated has room, and what has ended counts no more.
    assert isinstance(open_from("b", 8, anonymous=False), CircuitOpened)
    pass_on(circuits, first.number, DOWN, CircuitRefused("no"))
    assert isinstance(open_from("client 7", 7), CircuitOpened)
    assert circuits.statistics().refused == {"circuit-share-full": 2}


def test_a_pool_is_of_several_containers_and_a_share_of_it_at_least_one() -> None:
    circuits, own = Circuits(OWN), replace(ATTACH, source=b"s" * 8)
    pool, full = CircuitPool("links", 3), CircuitRefused("circuit-share-full")
    assert isinstance(circuits.open(own, "a", "x", 0.0, pool=pool), CircuitOpened)
    assert circuits.open(own, "a", "y", 0.0, pool=pool) == full
    assert isinstance(circuits.open(own, "a", "y", 0.0), CircuitOpened)
    circuits.close()
    assert isinstance(circuits.open(own, "a", "y", 0.0, pool=pool), CircuitOpened)


def test_a_loss_is_told_to_the_side_that_is_left() -> None:
    circuits = Circuits(OWN)
    up, down, both = attached(circuits), opened(circuits, "x", "down"), opened(circuits, "d", "d")
    sends = circuits.link_lost("down")
    assert told(sends) == [
        (UP, CircuitDetach(LOST, "route-lost")),
        # Before it is attached, there is no circuit to be detached.
        (UP, CircuitRefused("route-lost")),
    ]
    assert [send.number for send in sends] == [up, down]
    assert circuits.link_lost("down") == ()
    assert circuits.link_lost("d") == ()
    assert circuits.statistics().lost == {"route-lost": 3}
    assert circuits.receive(both, UP, b"", 0.0) == ()
    assert circuits.statistics().ignored == 1


def test_the_word_of_a_loss_is_passed_on_and_not_answered() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    pass_on(circuits, number, DOWN, CircuitDetach(LOST, "route-lost"))
    assert circuits.statistics().ended == {PairState.LOST: 1}
    assert circuits.receive(number, UP, b"", 0.0) == ()


def test_an_attach_that_is_not_answered_is_refused() -> None:
    circuits = Circuits(OWN)
    opened(circuits)
    assert circuits.get_timer() == 10.0
    assert circuits.due(9.9) == ()
    assert told(circuits.due(10.0)) == [
        (UP, CircuitRefused("answer-timeout")),
        (DOWN, CircuitDetach(LOST, "answer-timeout")),
    ]
    assert circuits.get_timer() is None


def test_a_detach_that_is_not_answered_is_a_loss() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    pass_on(circuits, number, DOWN, CircuitDetach(DetachKind.CLOSED), now=200.0)
    assert circuits.due(209.0) == ()
    assert circuits.get_timer() == 210.0
    assert told(circuits.due(210.0)) == [
        (UP, CircuitDetach(LOST, "answer-timeout")),
        (DOWN, CircuitDetach(LOST, "answer-timeout")),
    ]


def test_a_side_that_sends_nothing_is_idle() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    assert circuits.due(10.0) == ()
    pass_on(circuits, number, UP, CircuitAlive(), now=299.0)
    pass_on(circuits, number, DOWN, CircuitAlive(), now=250.0)
    assert circuits.due(300.0) == ()
    assert circuits.get_timer() == 550.0
    assert [side for side, _ in told(circuits.due(550.0))] == [UP, DOWN]
    assert circuits.statistics().lost == {"idle": 1}


def test_a_detach_may_cross_the_answer_to_the_attach() -> None:
    circuits = Circuits(OWN)
    number = opened(circuits)
    pass_on(circuits, number, UP, CircuitDetach(DetachKind.CLOSED))
    pass_on(circuits, number, DOWN, CircuitAttached(), CircuitFlow(3))
    pass_on(circuits, number, DOWN, CircuitDetach(DetachKind.CLOSED))
    number = opened(circuits)
    pass_on(circuits, number, UP, CircuitDetach(DetachKind.CLOSED))
    pass_on(circuits, number, DOWN, CircuitRefused("no"))
    ended = circuits.statistics().ended
    assert ended == {PairState.DETACHED: 1, PairState.REFUSED: 1}


def test_credit_is_counted() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    pass_on(circuits, number, DOWN, CircuitFlow(2), CircuitFlow(1))
    pass_on(circuits, number, UP, CircuitTransfer(b"a", b""), CircuitDrained(1))
    pass_on(circuits, number, UP, CircuitTransfer(b"b", b"", more=True))
    pass_on(circuits, number, UP, CircuitTransfer(b"b", b""))
    assert broken(circuits, number, UP, CircuitTransfer(b"c", b"")) == "credit-exceeded: "
    for frame in (CircuitDrained(1), CircuitTransfer(b"c", b"")):
        assert broken(circuits, attached(circuits), UP, frame) == "credit-exceeded: "
    number = attached(circuits)
    pass_on(circuits, number, DOWN, CircuitFlow(MAX_CREDIT))
    assert broken(circuits, number, DOWN, CircuitFlow(1)) == "credit-exceeded: "


@pytest.mark.parametrize(
    ("side", "frame", "text"),
    [
        (UP, ATTACH, "ATTACH in a circuit"),
        (UP, CircuitAttached(), "ATTACHED without an attach"),
        (DOWN, CircuitAttached(), "ATTACHED without an attach"),
        (DOWN, CircuitRefused("no"), "REFUSED without an attach"),
        (UP, CircuitFlow(1), "FLOW from the wrong end"),
        (DOWN, CircuitDrained(0), "DRAINED from the wrong end"),
        (DOWN, CircuitTransfer(b"", b""), "TRANSFER from the wrong end"),
    ],
)
def test_a_frame_that_may_not_come_ends_the_circuit(
    side: CircuitSide, frame: CircuitFrame, text: str
) -> None:
    circuits = Circuits(OWN)
    assert broken(circuits, attached(circuits), side, frame) == f"bad-frame: {text}"
    assert circuits.statistics().lost == {"bad-frame": 1}


@pytest.mark.parametrize("side", [UP, DOWN])
def test_nothing_passes_before_the_circuit_is_attached(side: CircuitSide) -> None:
    circuits = Circuits(OWN)
    text = "bad-frame: DISPOSITION before the circuit is attached"
    assert broken(circuits, opened(circuits), side, CircuitDisposition(b"")) == text
    number = opened(circuits)
    pass_on(circuits, number, UP, CircuitAlive())
    text = broken(circuits, number, DOWN, CircuitDetach(DetachKind.CLOSED))
    assert text == "bad-frame: DETACH in place of an answer"


@pytest.mark.parametrize("frame", [CircuitAlive(), CircuitDetach(DetachKind.DETACHED)])
def test_nothing_passes_behind_a_detach(frame: CircuitFrame) -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    pass_on(circuits, number, UP, CircuitDetach(DetachKind.DETACHED))
    assert broken(circuits, number, UP, frame).endswith("behind a detach")


def test_a_delivery_may_not_begin_within_another() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    pass_on(circuits, number, DOWN, CircuitFlow(5))
    pass_on(circuits, number, UP, CircuitTransfer(b"a", b"", more=True))
    text = broken(circuits, number, UP, CircuitTransfer(b"b", b""))
    assert text == "bad-frame: a delivery begins within another"


def test_what_is_no_frame_ends_its_circuit_and_no_other() -> None:
    circuits = Circuits(OWN)
    bad, good = attached(circuits), attached(circuits)
    assert len(circuits.receive(bad, UP, b"\xff", 0.0)) == 2
    pass_on(circuits, good, UP, CircuitAlive())


def test_a_later_version_is_counted_and_changes_nothing() -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    assert circuits.receive(number, UP, dumps([2, 1]), 0.0) == ()
    assert circuits.statistics().later == 1
    pass_on(circuits, number, UP, CircuitAlive())


def test_the_table_has_every_state_and_input() -> None:
    assert {state for state, _ in CIRCUIT_PAIR} | set(CIRCUIT_PAIR.values()) == set(PairState)
    assert {given for _, given in CIRCUIT_PAIR} == set(PairInput)


@pytest.mark.parametrize(
    ("condition", "sides"),
    [(CircuitCondition.ROUTE_LOST, [UP]), (CircuitCondition.TOO_SLOW, [UP, DOWN])],
)
def test_a_side_that_is_gone_is_told_nothing_and_a_slow_one_is(
    condition: CircuitCondition, sides: list[CircuitSide]
) -> None:
    circuits = Circuits(OWN)
    number = attached(circuits)
    assert number in circuits
    assert circuits.of_peer("down") == (number,)
    lost = CircuitDetach(LOST, condition)
    assert told(circuits.side_lost(number, DOWN, condition)) == [(side, lost) for side in sides]
    assert circuits.side_lost(number, DOWN, condition) == ()
    assert circuits.of_peer("down") == ()
    assert (len(circuits), number in circuits) == (0, False)


def test_a_node_that_stops_tells_both_sides_of_each_circuit() -> None:
    circuits = Circuits(OWN)
    attached(circuits)
    opened(circuits)
    lost = CircuitDetach(LOST, "route-lost")
    refused = CircuitRefused("route-lost")
    assert told(circuits.close()) == [(UP, lost), (DOWN, lost), (UP, refused), (DOWN, lost)]
    assert len(circuits) == 0
