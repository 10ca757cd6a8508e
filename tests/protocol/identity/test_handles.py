"""The way back of answers: handles for one use, of one peer, until their expiry."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.identity import (
    MAX_HOPS,
    MAX_SKEW,
    MAX_TTL,
    REPLY_SIZES,
    Answer,
    BadKey,
    ExpectedAnswer,
    ExpectedAnswers,
    HandleRefusal,
    HandleTable,
    Identity,
    MessageTooBig,
    PeelOutcome,
    RelayContent,
    ReplyContent,
    ReturnHandle,
    build_onion,
    one_time_signers,
    open_answer,
    seal_answer,
    stream_xor,
)
from tests.support.onions import EXPIRY, NOW, SENDER, OnionNode, message_to, passed, secret

HANDLE = secret("handle", 16)
BACK = secret("handle of the peer", 16)
KEY = secret("reply key")
NONCE = secret("nonce", 12)
REPLY = secret("reply", min(REPLY_SIZES))
A, B, C = (OnionNode(name).identity for name in "abc")


def entry(number: int = 0, *, far: bool = False, expiry: int = EXPIRY) -> ReturnHandle:
    return ReturnHandle((A, C)[number % 2], BACK, KEY, expiry, None if far else B)


def table(handle: ReturnHandle | None = None) -> HandleTable:
    found = HandleTable()
    assert found.add(HANDLE, entry() if handle is None else handle, NOW) is None
    return found


def counted(handles: HandleTable | ExpectedAnswers) -> dict[HandleRefusal, int]:
    return {refusal: count for refusal, count in handles.refused.items() if count}


@given(st.integers(1, MAX_HOPS), st.binary(max_size=3000), st.binary(max_size=3000))
@settings(max_examples=30)
def test_an_answer_comes_back_the_way_that_its_message_went(
    count: int, asked: bytes, data: bytes
) -> None:
    nodes = [OnionNode(f"node {number}") for number in range(count)]
    reply_keys = tuple(secret(f"reply {number}") for number in range(count))
    envelope = build_onion(
        [node.hop for node in nodes],
        message_to(nodes[-1], asked),
        expiry=EXPIRY,
        signers=one_time_signers(secret("once", 32 * count)),
        reply_keys=reply_keys,
    )
    expected = ExpectedAnswers()
    waited = ExpectedAnswer(nodes[0].identity, reply_keys, B, C, EXPIRY)
    assert expected.expect(HANDLE, waited, NOW) is None
    content, peer = RelayContent(envelope, HANDLE), SENDER.identity
    outcomes: list[PeelOutcome] = []
    for node in nodes:
        peeled, content = node.take_with_handle(content, peer)
        outcomes.append(peeled.outcome)
        peer = node.identity
    assert outcomes == [PeelOutcome.NEXT] * (count - 1) + [PeelOutcome.DELIVER]
    assert content.handle is not None

    back = passed(nodes[-1].handles.answer(content.handle, data, NONCE, NOW))
    for node, before in pairwise(reversed(nodes)):
        assert back.peer == before.identity
        back = passed(
            before.handles.pass_back(
                back.content.handle, node.identity, back.content.reply, NONCE, NOW
            )
        )
    assert back.peer == SENDER.identity
    assert back.content.handle == HANDLE
    answer = expected.open(HANDLE, nodes[0].identity, back.content.reply, NOW)
    assert answer == Answer(B, C, data)
    # Nothing is left of it anywhere.
    assert len(expected) == sum(len(node.handles) for node in nodes) == 0


def test_a_relay_gives_an_answer_its_own_stream_and_the_handle_before() -> None:
    back = passed(table().pass_back(HANDLE, B, REPLY, NONCE, NOW))
    assert (back.peer, back.content.handle) == (A, BACK)
    assert back.content.reply == stream_xor(KEY, REPLY)


def test_the_answer_to_what_has_passed_unchanged_does_so_as_well() -> None:
    between, far = OnionNode("between"), OnionNode("far")
    key = secret("reply of the far end")
    envelope = build_onion(
        [far.hop], message_to(far), expiry=EXPIRY, signers=[SENDER], reply_keys=[key]
    )
    expected = ExpectedAnswers()
    waited = ExpectedAnswer(between.identity, (key,), B, C, EXPIRY)
    assert expected.expect(HANDLE, waited, NOW) is None
    peeled, content = between.take_with_handle(RelayContent(envelope, HANDLE), SENDER.identity)
    assert (peeled.outcome, content.envelope) == (PeelOutcome.UNCHANGED, envelope)
    _, content = far.take_with_handle(content, between.identity)
    assert content.handle is not None
    first = passed(far.handles.answer(content.handle, b"yes", NONCE, NOW))
    back = passed(
        between.handles.pass_back(
            first.content.handle, far.identity, first.content.reply, NONCE, NOW
        )
    )
    assert (back.peer, back.content) == (
        SENDER.identity,
        ReplyContent(HANDLE, first.content.reply),
    )
    answer = expected.open(HANDLE, between.identity, back.content.reply, NOW)
    assert answer == Answer(B, C, b"yes")


def test_a_handle_is_good_for_one_use() -> None:
    handles = table()
    passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW))
    assert handles.pass_back(HANDLE, B, REPLY, NONCE, NOW) is HandleRefusal.UNKNOWN
    handles = table(entry(far=True))
    passed(handles.answer(HANDLE, b"yes", NONCE, NOW))
    assert handles.answer(HANDLE, b"no", NONCE, NOW) is HandleRefusal.UNKNOWN
    assert counted(handles) == {HandleRefusal.UNKNOWN: 1}


def test_a_handle_that_comes_to_no_use_is_forgotten() -> None:
    handles = table()
    handles.forget(HANDLE)
    handles.forget(HANDLE)
    assert len(handles) == 0
    assert handles.pass_back(HANDLE, B, REPLY, NONCE, NOW) is HandleRefusal.UNKNOWN


def test_a_handle_of_another_peer_is_refused_and_stays() -> None:
    handles = table()
    assert handles.pass_back(HANDLE, C, REPLY, NONCE, NOW) is HandleRefusal.FOREIGN
    assert handles.pass_back(HANDLE, A, REPLY, NONCE, NOW) is HandleRefusal.FOREIGN
    # An engine of this node has no part in it, nor a peer in what an engine answers.
    assert handles.answer(HANDLE, b"yes", NONCE, NOW) is HandleRefusal.FOREIGN
    passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW))
    far = table(entry(far=True))
    assert far.pass_back(HANDLE, A, REPLY, NONCE, NOW) is HandleRefusal.FOREIGN
    assert counted(handles) == {HandleRefusal.FOREIGN: 3}


def test_a_handle_is_good_until_its_expiry() -> None:
    passed(table().pass_back(HANDLE, B, REPLY, NONCE, EXPIRY + MAX_SKEW))
    handles = table()
    late = EXPIRY + MAX_SKEW + 1
    assert handles.pass_back(HANDLE, B, REPLY, NONCE, late) is HandleRefusal.EXPIRED
    assert handles.add(HANDLE, entry(), late) is HandleRefusal.EXPIRED
    assert len(handles) == 0


def test_an_answer_of_another_size_is_refused_and_uses_no_handle() -> None:
    handles = table()
    for reply in (b"", REPLY[:-1], REPLY + b"\0", bytes(72 * 1024)):
        assert handles.pass_back(HANDLE, B, reply, NONCE, NOW) is HandleRefusal.BAD_SIZE
    passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW))


def test_an_answer_that_cannot_be_sealed_uses_no_handle() -> None:
    handles = table(entry(far=True))
    with pytest.raises(MessageTooBig):
        handles.answer(HANDLE, bytes(65533), NONCE, NOW)
    with pytest.raises(BadKey):
        handles.answer(HANDLE, b"yes", b"", NOW)
    passed(handles.answer(HANDLE, b"yes", NONCE, NOW))


def test_a_handle_in_use_is_not_replaced() -> None:
    handles = table()
    assert handles.add(HANDLE, entry(1), NOW) is HandleRefusal.IN_USE
    assert passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW)).peer == A


def test_the_handles_of_one_peer_and_of_all_have_a_limit() -> None:
    handles = HandleTable(limit=3, share=2)
    names = [secret(f"handle {number}", 16) for number in range(9)]
    assert handles.add(names[0], entry(0), NOW) is None
    assert handles.add(names[2], entry(0), NOW) is None
    assert handles.add(names[4], entry(0), NOW) is HandleRefusal.SHARE_FULL
    assert handles.add(names[1], entry(1), NOW) is None
    assert handles.add(names[3], entry(1), NOW) is HandleRefusal.FULL
    passed(handles.pass_back(names[0], B, REPLY, NONCE, NOW))
    assert handles.add(names[3], entry(1), NOW) is None
    assert counted(handles) == {HandleRefusal.SHARE_FULL: 1, HandleRefusal.FULL: 1}


def test_a_source_behind_a_peer_leaves_handles_for_others() -> None:
    handles = HandleTable(limit=9, share=4)
    names = [secret(f"handle {number}", 16) for number in range(9)]

    def of(source: Identity | None) -> ReturnHandle:
        return ReturnHandle(A, BACK, KEY, EXPIRY, B, source)

    assert [handles.add(names[each], of(B), NOW) for each in range(3)] == [
        None,
        None,
        HandleRefusal.SOURCE_FULL,
    ]
    assert handles.add(names[3], of(C), NOW) is None
    assert handles.add(names[4], of(None), NOW) is None
    assert handles.add(names[5], of(None), NOW) is HandleRefusal.SHARE_FULL
    passed(handles.pass_back(names[0], B, REPLY, NONCE, NOW))
    passed(handles.pass_back(names[1], B, REPLY, NONCE, NOW))
    assert handles.add(names[0], of(B), NOW) is None


def test_an_exit_opens_the_answer_and_seals_it_for_the_relay_before() -> None:
    opens = secret("opens")

    def let_out() -> HandleTable:
        return table(ReturnHandle(A, BACK, KEY, EXPIRY, B, opens=opens))

    reply = seal_answer(opens, b"yes", NONCE)
    back = passed(let_out().pass_back(HANDLE, B, reply, secret("other", 12), NOW))
    assert (back.peer, back.content.handle) == (A, BACK)
    assert back.content.reply != reply
    assert open_answer((KEY,), back.content.reply) == b"yes"
    handles = let_out()
    assert handles.pass_back(HANDLE, B, REPLY, NONCE, NOW) is HandleRefusal.TAMPERED
    assert handles.pass_back(HANDLE, B, reply, NONCE, NOW) is HandleRefusal.UNKNOWN
    with pytest.raises(BadKey, match="a reply key has 32 bytes, not 1"):
        ReturnHandle(A, BACK, KEY, EXPIRY, B, opens=b"x")


def test_the_reservation_of_a_message_is_that_of_its_answer() -> None:
    handles = table(ReturnHandle(A, BACK, KEY, EXPIRY, B, reserved=C))
    assert passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW)).reserved == C


def test_expired_handles_make_room() -> None:
    handles = HandleTable(limit=2)
    first, second, third = (secret(f"handle {number}", 16) for number in range(3))
    assert handles.add(first, entry(), NOW) is None
    assert handles.add(second, entry(expiry=EXPIRY + 5000), NOW) is None
    late = EXPIRY + MAX_SKEW + 1
    assert handles.add(third, entry(expiry=EXPIRY + 5000), late) is None
    assert len(handles) == 2
    handles.forget_expired(late + 5000)
    assert len(handles) == 0


def test_many_expired_handles_are_forgotten_bit_by_bit() -> None:
    handles = HandleTable()
    for number in range(300):
        assert handles.add(secret(f"handle {number}", 16), entry(number), NOW) is None
    late = EXPIRY + MAX_SKEW + 1
    handles.forget_expired(late)
    assert len(handles) == 300 - 256
    handles.forget_expired(late)
    assert len(handles) == 0


def test_a_handle_that_was_used_and_drawn_again_has_its_new_expiry() -> None:
    handles = table()
    passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW))
    assert handles.add(HANDLE, entry(expiry=EXPIRY + 5000), NOW) is None
    handles.forget_expired(EXPIRY + MAX_SKEW + 1)
    assert len(handles) == 1


def test_used_handles_do_not_pile_up_until_their_expiry() -> None:
    handles = HandleTable()
    for number in range(2000):
        handle = secret(f"handle {number}", 16)
        assert handles.add(handle, entry(number, far=True), NOW) is None
        passed(handles.answer(handle, b"", NONCE, NOW))
    assert len(handles) == 0
    assert len(handles._by_expiry) < 300


@pytest.mark.parametrize("named", ["peer", "user", "source", "engines"])
def test_what_is_banned_has_no_handle_and_uses_none(named: str) -> None:
    banned, other = OnionNode("banned").identity, secret("other handle", 16)
    changes: dict[str, Any] = {named: (C, banned) if named == "engines" else banned}
    handles = table()
    assert handles.add(other, replace(entry(), **changes), NOW) is None
    handles.forget_banned(banned)
    assert len(handles) == 1
    user = banned if named == "user" else B
    assert handles.pass_back(other, user, REPLY, NONCE, NOW) is HandleRefusal.UNKNOWN
    assert passed(handles.pass_back(HANDLE, B, REPLY, NONCE, NOW)).peer == A


def test_a_peer_that_is_not_trusted_any_more_gets_nothing() -> None:
    handles = table()
    other = secret("other handle", 16)
    assert handles.add(other, entry(1), NOW) is None
    handles.forget_peer(A)
    assert handles.pass_back(HANDLE, B, REPLY, NONCE, NOW) is HandleRefusal.UNKNOWN
    assert passed(handles.pass_back(other, B, REPLY, NONCE, NOW)).peer == C


def test_an_answer_that_was_changed_is_found_and_waited_for_no_longer() -> None:
    far = table(entry(far=True))
    reply = passed(far.answer(HANDLE, b"yes", NONCE, NOW)).content.reply
    changed = bytearray(reply)
    changed[100] ^= 1
    expected = ExpectedAnswers()
    waited = ExpectedAnswer(A, (KEY,), B, C, EXPIRY)
    assert expected.expect(HANDLE, waited, NOW) is None
    assert expected.open(HANDLE, B, reply, NOW) is HandleRefusal.FOREIGN
    assert expected.open(HANDLE, A, b"", NOW) is HandleRefusal.BAD_SIZE
    assert expected.open(HANDLE, A, bytes(changed), NOW) is HandleRefusal.TAMPERED
    assert expected.open(HANDLE, A, reply, NOW) is HandleRefusal.UNKNOWN
    assert expected.expect(HANDLE, waited, NOW) is None
    assert expected.open(HANDLE, A, reply, NOW) == Answer(B, C, b"yes")
    assert expected.expect(HANDLE, waited, NOW) is None
    assert expected.open(HANDLE, A, reply, EXPIRY + MAX_SKEW + 1) is HandleRefusal.EXPIRED


def test_the_answers_that_are_waited_for_have_a_limit() -> None:
    expected = ExpectedAnswers(limit=1)
    waited = ExpectedAnswer(A, (KEY,), B, C, EXPIRY)
    assert expected.expect(HANDLE, waited, NOW) is None
    assert expected.expect(BACK, waited, NOW) is HandleRefusal.FULL
    assert len(expected) == 1


def test_keys_and_handles_of_another_size_are_errors() -> None:
    with pytest.raises(BadKey, match="no key: a handle has 16 bytes, not 15"):
        HandleTable().add(HANDLE[:15], entry(), NOW)
    with pytest.raises(BadKey, match="no key: a handle has 16 bytes, not 0"):
        ReturnHandle(A, b"", KEY, EXPIRY, B)
    with pytest.raises(BadKey, match="no key: a reply key has 32 bytes, not 31"):
        ReturnHandle(A, BACK, KEY[:31], EXPIRY, B)
    with pytest.raises(BadKey, match="no key: a reply key has 32 bytes, not 33"):
        ExpectedAnswer(A, (KEY, KEY + b"\0"), B, C, EXPIRY)
    with pytest.raises(BadKey, match="no key: a path has a reply key for each hop"):
        ExpectedAnswer(A, (), B, C, EXPIRY)
    assert "reply_key" not in repr(entry())


@given(st.lists(st.tuples(st.sampled_from("+-t"), st.integers(0, 7), st.integers(0, 1))))
def test_the_table_is_a_dictionary_with_limits(
    steps: list[tuple[str, int, int]],
) -> None:
    handles, model, now = HandleTable(limit=4, share=3), dict[int, ReturnHandle](), NOW
    for step, number, peer in steps:
        handle = secret(f"handle {number}", 16)
        model = {key: each for key, each in model.items() if each.expiry >= now - MAX_SKEW}
        if step == "t":
            now += 10_000 * number
        elif step == "+":
            peers = [each.peer for each in model.values()]
            new = entry(peer, expiry=now + 1000 * number)
            room = len(model) < 4 and peers.count(new.peer) < 3 and number not in model
            assert (handles.add(handle, new, now) is None) == room
            if room:
                model[number] = new
        else:
            found = handles.pass_back(handle, B, REPLY, NONCE, now)
            kept = model.pop(number, None)
            assert isinstance(found, HandleRefusal) == (kept is None)
            assert kept is None or passed(found).peer == kept.peer


def test_handles_of_a_time_to_come_are_forgotten_if_the_clock_is_set_back() -> None:
    handles = HandleTable(limit=600, share=600)
    for number in range(600):
        assert handles.add(number.to_bytes(16), entry(expiry=NOW + number % 2), NOW) is None
    assert handles.add(BACK, entry(), NOW) is HandleRefusal.SHARE_FULL
    back = NOW - MAX_TTL - MAX_SKEW
    handles.clock_set_back(back)
    assert len(handles) == 300
    assert handles.pass_back((1).to_bytes(16), B, REPLY, NONCE, NOW) is HandleRefusal.UNKNOWN
    assert passed(handles.pass_back((2).to_bytes(16), B, REPLY, NONCE, NOW)).peer == A
    assert handles.add(BACK, entry(expiry=back), back) is None
