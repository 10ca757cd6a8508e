"""The steps of failures that a peer may not tell apart: the same ones for all of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from onward.protocol.identity import (
    MAX_SKEW,
    NO_REPLY,
    Destination,
    DestinationKind,
    EngineMessage,
    ExpectedAnswer,
    ExpectedAnswers,
    HandleRefusal,
    HandleTable,
    LinkChannel,
    LinkDialler,
    LinkFailure,
    LinkListener,
    LinkProof,
    PeelOutcome,
    Protocol,
    RelayMessage,
    ReturnHandle,
    SigningKey,
    Verifiers,
    build_onion,
    open_relay_message,
    parse_handshake,
    relay_info,
    seal,
    seal_answer,
    sign_engine_message,
    sign_relay_message,
)
from tests.support.onions import EXPIRY, NOW, SENDER, OnionNode, message_to, secret
from tests.support.steps import Steps

MALLORY, ALICE, BOB, CAROL = (SigningKey(secret(name)) for name in ("m", "a", "b", "c"))

VERIFIED = {"key": 1, "verify": 1}
UNSEALED = {"key": 1, "verify": 1, "unseal": 1}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def node(steps: Steps) -> OnionNode:
    return OnionNode("node")


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def layer_of(*nodes: OnionNode, message: bytes | None = None, expiry: int = EXPIRY) -> RelayMessage:
    envelope = build_onion(
        [each.hop for each in nodes],
        message_to(nodes[-1]) if message is None else message,
        expiry=expiry,
        signers=[SENDER] * len(nodes),
    )
    found = open_relay_message(envelope, Verifiers())
    assert found is not None
    return found


def peel(steps: Steps, node: OnionNode, envelope: bytes) -> tuple[dict[str, int], PeelOutcome]:
    taken, peeled = steps.of(lambda: node.peeler.peel(envelope, SENDER.identity, NOW))
    return taken, peeled.outcome


def signed(layer: RelayMessage, key: SigningKey = SENDER) -> bytes:
    return sign_relay_message(replace(layer, src=key.identity), key)


# --- a layer that an attacker has not sealed --------------------------------------------------


def test_threat_10_all_that_does_not_open_takes_the_same_steps(
    steps: Steps, node: OnionNode
) -> None:
    layer = layer_of(node)
    other = SigningKey(secret("other"))
    closed = [
        *(replace(layer, sealed=flipped(layer.sealed, at)) for at in (0, 4, 35, 36, 300, -17, -1)),
        replace(layer, sealed=layer.sealed[:-1]),
        replace(layer, expiry=layer.expiry + 1),
        replace(layer_of(OnionNode("elsewhere")), dst=node.identity),
    ]
    envelopes = [*map(signed, closed), signed(layer, other)]
    found = [peel(steps, node, each) for each in envelopes]
    assert {outcome for _, outcome in found} == {PeelOutcome.NOT_OPENED}
    # The first one that is right makes the key of its source ready for the next ones.
    assert [{**taken, "key": 1} for taken, _ in found] == [UNSEALED] * len(found)


def test_threat_10_the_keys_that_are_left_are_not_told(steps: Steps, node: OnionNode) -> None:
    before = layer_of(node)
    node.keys.rotate(secret("second"), NOW)
    kept = flipped(before.sealed, -1)
    gone = bytes(4) + before.sealed[4:]
    for sealed in (kept, gone):
        taken, outcome = steps.of(partial(node.keys.open, sealed, b"", NOW))
        assert (taken, outcome) == ({"unseal": 1}, None)


@pytest.mark.parametrize("case", ["good", "replayed", "late", "refused", "elsewhere", "closed"])
def test_threat_10_a_wrong_signature_takes_the_same_steps_whatever_it_is_of(
    steps: Steps, node: OnionNode, case: str
) -> None:
    layer = layer_of(node)
    good = signed(layer)
    node.peeler.peel(signed(layer_of(node)), SENDER.identity, NOW)  # the key is kept
    if case == "replayed":
        node.peeler.peel(good, SENDER.identity, NOW)
    elif case == "late":
        layer = replace(layer, expiry=NOW - MAX_SKEW - 1)
    elif case == "refused":
        node.rules.refused.add(SENDER.identity)
    elif case == "elsewhere":
        layer = replace(layer, dst=OnionNode("elsewhere").identity)
    elif case == "closed":
        layer = replace(layer, sealed=flipped(layer.sealed, -1))
    for key in (SENDER, MALLORY):  # one that is kept, and one that is not
        for at in (-64, -33, -32):
            envelope = flipped(signed(layer, key), at)
            assert peel(steps, node, envelope) == (VERIFIED, PeelOutcome.BAD_SIGNATURE)


# --- a layer that an attacker has sealed ------------------------------------------------------


def test_threat_10_what_is_in_a_layer_takes_the_steps_that_its_maker_knows(
    steps: Steps, node: OnionNode
) -> None:
    def sealed(kind: int, inner: bytes, room: int = 256) -> bytes:
        info = relay_info(MALLORY.identity, node.identity, None, EXPIRY)
        text = seal(node.keys.public, kind, NO_REPLY, inner, room=room, info=info)  # type: ignore[arg-type]
        return signed(RelayMessage(MALLORY.identity, node.identity, EXPIRY, text), MALLORY)

    node.peeler.peel(sealed(0, b""), SENDER.identity, NOW)  # the key of the source is kept
    opened = {"verify": 1, "unseal": 1}
    for kind, inner in ((7, b""), (0, b"x"), (1, b"x"), (1, sealed(0, b""))):
        taken, outcome = peel(steps, node, sealed(kind, inner, 2048))
        assert taken == opened
        assert outcome in {PeelOutcome.NOT_OPENED, PeelOutcome.BAD_INNER}


def test_threat_10_a_wrong_signature_in_a_layer_takes_the_same_steps_whatever_it_is_of(
    steps: Steps, node: OnionNode
) -> None:
    here, nowhere = node.engine.identity, MALLORY.identity
    node.peeler.peel(signed(layer_of(node)), SENDER.identity, NOW)  # both keys are kept
    for destination in (here, nowhere):
        for key in (SENDER, ALICE):
            message = EngineMessage(
                key.identity,
                Destination(DestinationKind.ENGINE, destination),
                7,
                Protocol("wire", 1),
                b"hello",
                expiry=EXPIRY,
            )
            envelope = flipped(sign_engine_message(message, key), -40)
            taken, outcome = peel(steps, node, signed(layer_of(node, message=envelope)))
            assert (taken, outcome) == (
                {"key": 1, "verify": 2, "unseal": 1},
                PeelOutcome.BAD_INNER,
            )


def test_threat_10_what_the_rules_refuse_has_taken_the_steps_of_what_they_allow(
    steps: Steps, node: OnionNode
) -> None:
    following = OnionNode("following")
    taken, outcome = peel(steps, node, signed(layer_of(node, following)))
    assert outcome is PeelOutcome.NEXT
    node.rules.refused.add(following.identity)
    node.peeler.peel(signed(layer_of(node, following)), SENDER.identity, NOW)
    refused, outcome = peel(steps, node, signed(layer_of(node, following)))
    assert outcome is PeelOutcome.REFUSED
    assert {"key": 1, **refused} == taken


# --- links ------------------------------------------------------------------------------------


def shaking(
    expected: SigningKey | None = None, refused: SigningKey | None = None
) -> tuple[LinkDialler, LinkListener]:
    """Return both ends of a handshake, with what each wants of the other one."""

    def admits(identity: bytes) -> bool:
        return refused is None or identity != refused.identity

    known = Verifiers()
    assert known.is_signed_by(BOB.identity, BOB.sign(b"before"), b"before")
    dials = LinkDialler(
        ALICE,
        secret("dials"),
        known,
        0.0,
        expected=None if expected is None else expected.identity,
        admits=admits,
    )
    return dials, LinkListener(BOB, secret("is dialled"), Verifiers(), 0.0)


def heard(end: LinkDialler | LinkListener, data: bytes | None) -> bytes:
    assert data is not None
    answer = end.receive(data, 0.0)
    assert answer is not None
    return answer


@pytest.mark.parametrize("expected", [None, BOB, CAROL])
@pytest.mark.parametrize("refused", [None, BOB])
def test_threat_10_what_a_node_expects_is_not_told_by_a_wrong_proof(
    steps: Steps, expected: SigningKey | None, refused: SigningKey | None
) -> None:
    dials, listens = shaking(expected, refused)
    # It shows the identity of another node, whose key it does not have.
    listens._key = _Forger(BOB)
    reply = heard(listens, dials.begin(0.0))
    taken, _ = steps.of(lambda: dials.receive(reply, 0.0))
    assert dials.failure is LinkFailure.UNPROVEN
    assert taken == {"agree": 1, "open": 1, "verify": 1, "key": 1}


def test_threat_10_a_node_that_proves_its_key_takes_the_same_steps_as_any(steps: Steps) -> None:
    found: list[tuple[LinkFailure | None, dict[str, int]]] = []
    for expected, refused in ((CAROL, None), (None, BOB)):
        dials, listens = shaking(expected, refused)
        reply = heard(listens, dials.begin(0.0))
        taken, _ = steps.of(partial(dials.receive, reply, 0.0))
        found.append((dials.failure, taken))
    steps_of_proof = {"agree": 1, "open": 1, "verify": 1}
    assert found == [
        (LinkFailure.OTHER_IDENTITY, steps_of_proof),
        (LinkFailure.NOT_ADMITTED, steps_of_proof),
    ]


@pytest.mark.parametrize("at", [0, 40, -17, -1])
def test_threat_10_each_change_of_a_proof_takes_the_same_steps(steps: Steps, at: int) -> None:
    dials, listens = shaking()
    proof = heard(dials, heard(listens, dials.begin(0.0)))
    message = parse_handshake(proof)
    assert isinstance(message, LinkProof)
    head = len(proof) - len(message.sealed)
    changed = flipped(proof, at if at < 0 else head + at)
    taken, _ = steps.of(lambda: listens.receive(changed, 0.0))
    assert (taken, listens.failure) == ({"open": 1}, LinkFailure.UNPROVEN)


@pytest.mark.parametrize("at", [8, 30, -17, -1])
def test_threat_10_each_change_of_a_frame_takes_the_same_steps(steps: Steps, at: int) -> None:
    dials, listens = shaking()
    proof = heard(dials, heard(listens, dials.begin(0.0)))
    assert listens.receive(proof, 0.0) is None
    one, two = dials.channel, listens.channel
    assert isinstance(one, LinkChannel)
    assert isinstance(two, LinkChannel)
    frame = flipped(one.seal(bytes(100)), at)
    assert steps.of(lambda: two.open(frame)) == ({"open": 1}, LinkFailure.FORGED)


class _Forger(SigningKey):
    """The identity of a key, with signatures of another one."""

    def __init__(self, shown: SigningKey) -> None:
        super().__init__(secret("forger"))
        self.identity = shown.identity


# --- answers ----------------------------------------------------------------------------------


def test_threat_10_all_handles_that_are_refused_take_no_steps(steps: Steps) -> None:
    table = HandleTable()
    entry = ReturnHandle(ALICE.identity, bytes(16), bytes(range(32)), EXPIRY, BOB.identity)
    for handle in (b"1" * 16, b"2" * 16):
        assert table.add(handle, entry, NOW) is None
    reply = bytes(1052)
    late = EXPIRY + MAX_SKEW + 1
    cases: list[Callable[[], object]] = [
        lambda: table.pass_back(b"0" * 16, BOB.identity, reply, bytes(12), NOW),
        lambda: table.pass_back(b"1" * 16, CAROL.identity, reply, bytes(12), NOW),
        lambda: table.pass_back(b"1" * 16, BOB.identity, reply[1:], bytes(12), NOW),
        lambda: table.pass_back(b"2" * 16, BOB.identity, reply, bytes(12), late),
    ]
    for case in cases:
        taken, refusal = steps.of(case)
        assert isinstance(refusal, HandleRefusal)
        assert taken == {}


@pytest.mark.parametrize("at", [0, 11, 12, 500, -17, -1])
def test_threat_10_each_change_of_an_answer_takes_the_same_steps(steps: Steps, at: int) -> None:
    keys = tuple(secret(name) for name in ("one", "two", "far"))
    answers = ExpectedAnswers()
    expected = ExpectedAnswer(
        ALICE.identity,
        reply_keys=keys,
        asker=ALICE.identity,
        asked=BOB.identity,
        expiry=EXPIRY,
    )
    assert answers.expect(bytes(16), expected, NOW) is None
    reply = flipped(seal_answer(keys[-1], b"answer", bytes(12)), at)
    taken, refusal = steps.of(lambda: answers.open(bytes(16), ALICE.identity, reply, NOW))
    assert (taken, refusal) == ({"stream": 2, "open": 1}, HandleRefusal.TAMPERED)
