"""Requests to a domain: one member, once, and back the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.identity import (
    MAX_BODY,
    MAX_DOMAIN_PATH,
    MAX_SKEW,
    MAX_TTL,
    DomainAdvert,
    DomainEnded,
    DomainRefusal,
    DomainRequest,
    DomainRequestLimits,
    DomainRequests,
    DomainResponse,
    DomainTable,
    Identity,
    Protocol,
    ResultCode,
    SendDomainRecord,
    ServeDomainRequest,
    identity_of_key,
)


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


ME, A, B, C, DOMAIN = (identity(number) for number in range(5))
WORDS = Protocol("words", 1)
OK, FAILED = ResultCode.OK, ResultCode.REMOTE_FAILED
NOW = 1_000_000
EXPIRY = NOW + 5000


def requests(
    *members: Identity, limits: DomainRequestLimits | None = None, node: Identity = ME
) -> DomainRequests:
    table = DomainTable()
    table.update(DomainAdvert(DOMAIN, members, 1, 0))
    return DomainRequests(node, table, limits)


def asked(*path: Identity, number: int = 1) -> DomainRequest:
    return DomainRequest(path[0], DOMAIN, number, path, EXPIRY, WORDS, b"ask")


def answered(member: Identity, *path: Identity, result: ResultCode = OK) -> DomainResponse:
    body = b"answer" if result is OK else b""
    return DomainResponse(DOMAIN, member, path[-1], 1, path, result, WORDS, body)


def send(state: DomainRequests, random: int = 0, number: int = 1) -> list[object]:
    return [*state.send(DOMAIN, number, EXPIRY, WORDS, b"ask", random)]


def test_a_request_goes_to_a_member_and_its_response_back() -> None:
    state = requests(A)
    assert send(state) == [SendDomainRecord(A, asked(ME))]
    assert state.get_timer() == EXPIRY
    response = answered(A, ME)
    assert state.receive_response(response, A) == [DomainEnded(1, OK, response)]
    assert state.receive_response(response, A) == []
    assert (len(state), state.get_timer(), state.counters.unexpected) == (0, None, 1)


def test_a_request_is_served_here_if_it_can_be() -> None:
    state = requests(A)
    state.serve(DOMAIN)
    assert send(state) == [ServeDomainRequest(asked(ME))]
    response = answered(ME, ME)
    assert state.answer(asked(ME), OK, WORDS, b"answer") == [DomainEnded(1, OK, response)]
    assert state.answer(asked(ME), OK, WORDS, b"answer") == []
    state.stop(DOMAIN)
    assert send(state, number=2) == [SendDomainRecord(A, asked(ME, number=2))]
    assert state.answer(asked(ME, number=2), OK, WORDS, b"") == []
    assert state.counters.unexpected == 2


def test_the_path_grows_at_each_node_and_leads_back() -> None:
    state = requests(C)
    assert state.receive_request(asked(A, B), B, NOW, 0) == [SendDomainRecord(C, asked(A, B, ME))]
    assert state.get_timer() == EXPIRY + MAX_SKEW
    wrong = answered(C, ME, A)
    assert state.receive_response(wrong, C) == []
    assert state.receive_response(answered(C, ME, B, A), B) == []
    assert state.receive_response(answered(C, ME, B, A), C) == [
        SendDomainRecord(B, answered(C, B, A))
    ]
    counters = state.counters
    assert (counters.forwarded, counters.forged, counters.unexpected) == (1, 1, 1)


def test_a_member_serves_a_request_once_and_answers_along_its_path() -> None:
    state = requests(ME)
    state.serve(DOMAIN)
    request = asked(A, B)
    assert state.receive_request(request, B, NOW, 0) == [ServeDomainRequest(request)]
    assert state.receive_request(request, B, NOW, 0) == []
    assert state.answer(request, OK, WORDS, b"answer") == [SendDomainRecord(B, answered(ME, B, A))]
    # By whatever way it comes again.
    assert state.receive_request(asked(A, C), C, NOW, 0) == []
    assert (state.counters.served, state.counters.duplicates) == (1, 2)


def test_threat_14_a_path_with_this_node_is_refused() -> None:
    state = requests(C)
    denied = DomainRefusal(A, 1, ResultCode.DENIED)
    assert state.receive_request(asked(A, ME, B), B, NOW, 0) == [SendDomainRecord(B, denied)]
    assert len(state) == 0


def test_threat_14_a_path_that_is_full_goes_no_further() -> None:
    nodes = tuple(identity(50 + number) for number in range(MAX_DOMAIN_PATH))
    state = requests(C)
    denied = DomainRefusal(nodes[0], 1, ResultCode.DENIED)
    assert state.receive_request(asked(*nodes), nodes[-1], NOW, 0) == [
        SendDomainRecord(nodes[-1], denied)
    ]
    state.serve(DOMAIN)
    assert state.receive_request(asked(*nodes), nodes[-1], NOW, 0) == [
        ServeDomainRequest(asked(*nodes))
    ]


def test_a_path_that_does_not_end_at_the_peer_is_dropped() -> None:
    state = requests(C)
    assert state.receive_request(asked(A), B, NOW, 0) == []
    assert state.counters.forged == 1


@pytest.mark.parametrize("expiry", [NOW - MAX_SKEW - 1, NOW + MAX_TTL + MAX_SKEW + 1])
def test_threat_7_a_request_that_is_not_fresh_is_refused(expiry: int) -> None:
    state = requests(C)
    refusal = DomainRefusal(A, 1, ResultCode.TIMEOUT)
    request = replace(asked(A), expiry=expiry)
    assert state.receive_request(request, A, NOW, 0) == [SendDomainRecord(A, refusal)]
    assert state.counters.refused == 1


def test_a_refusal_leads_to_another_member_up_to_the_limit() -> None:
    state = requests(A, B, C, limits=DomainRequestLimits(attempts=2))
    assert send(state) == [SendDomainRecord(A, asked(ME))]
    refusal = DomainRefusal(ME, 1, ResultCode.OVERFLOW)
    assert state.receive_refusal(refusal, B, 0) == []
    assert state.receive_refusal(refusal, A, 0) == [SendDomainRecord(B, asked(ME))]
    assert state.receive_refusal(refusal, B, 0) == [DomainEnded(1, ResultCode.OVERFLOW)]
    assert len(state) == 0


def test_what_was_not_sent_goes_to_another_member_and_ends_without_one() -> None:
    state = requests(A, B)
    assert send(state, 1) == [SendDomainRecord(B, asked(ME))]
    assert state.not_sent(asked(ME), 1) == [SendDomainRecord(A, asked(ME))]
    assert state.not_sent(asked(ME), 1) == [DomainEnded(1, FAILED)]
    assert state.not_sent(asked(ME), 1) == []


def test_what_the_worker_here_did_not_take_goes_to_another_member() -> None:
    state = requests(ME, A)
    state.serve(DOMAIN)
    assert send(state) == [ServeDomainRequest(asked(ME))]
    assert state.not_sent(asked(ME), 0) == [SendDomainRecord(A, asked(ME))]


def test_what_was_refused_may_come_again() -> None:
    state = requests(ME)
    state.serve(DOMAIN)
    request = asked(A)
    assert state.receive_request(request, A, NOW, 0) == [ServeDomainRequest(request)]
    refusal = SendDomainRecord(A, DomainRefusal(A, 1, FAILED))
    assert state.not_sent(request, 0) == [refusal]
    assert state.receive_request(request, A, NOW, 0) == [ServeDomainRequest(request)]


def test_a_node_on_the_way_tries_one_member_only() -> None:
    state = requests(B, C)
    assert state.receive_request(asked(A), A, NOW, 0) == [SendDomainRecord(B, asked(A, ME))]
    refusal = DomainRefusal(A, 1, ResultCode.UNKNOWN)
    assert state.receive_refusal(refusal, B, 0) == [SendDomainRecord(A, refusal)]


def test_without_a_member_a_request_ends_or_is_refused() -> None:
    state = requests()
    unknown = ResultCode.UNKNOWN
    assert send(state) == [DomainEnded(1, unknown)]
    refusal = DomainRefusal(A, 1, unknown)
    assert state.receive_request(asked(A), A, NOW, 0) == [SendDomainRecord(A, refusal)]


def test_a_request_is_in_doubt_when_the_link_ends_and_is_not_sent_again() -> None:
    state = requests(B, C)
    state.open_link(C)
    assert send(state) == [SendDomainRecord(C, asked(ME))]
    assert state.close_link(B) == []
    assert state.close_link(C) == [DomainEnded(1, FAILED, in_doubt=True)]
    assert len(state) == 0


def test_a_node_on_the_way_says_that_a_request_is_in_doubt() -> None:
    state = requests(C)
    state.receive_request(asked(A, B), B, NOW, 0)
    # It waits for the one, and the other one waits for it.
    assert [state.is_waiting(each) for each in (A, B, C)] == [False, True, True]
    failed = answered(ME, B, A, result=FAILED)
    assert state.close_link(C) == [SendDomainRecord(B, failed)]
    origin = requests(B)
    send(origin)
    doubt = answered(B, ME, result=FAILED)
    assert origin.receive_response(doubt, B) == [DomainEnded(1, FAILED, doubt, in_doubt=True)]


def test_a_request_without_a_response_in_time_ends() -> None:
    state = requests(A)
    send(state)
    state.receive_request(asked(B), B, NOW, 0)
    assert state.handle_timer(EXPIRY - 1) == []
    assert state.handle_timer(EXPIRY) == [DomainEnded(1, ResultCode.TIMEOUT, in_doubt=True)]
    assert state.handle_timer(EXPIRY + MAX_SKEW) == []
    assert (len(state), state.counters.expired) == (0, 2)


def test_a_member_with_fewer_requests_under_way_is_chosen_first() -> None:
    state = requests(A, B)
    assert send(state, number=1) == [SendDomainRecord(A, asked(ME, number=1))]
    assert send(state, number=2) == [SendDomainRecord(B, asked(ME, number=2))]
    assert send(state, number=3) == [SendDomainRecord(A, asked(ME, number=3))]
    state.receive_response(answered(A, ME), A)
    assert send(state, number=4) == [SendDomainRecord(A, asked(ME, number=4))]
    assert send(state, number=5) == [SendDomainRecord(B, asked(ME, number=5))]


def test_a_number_is_used_once_at_a_time() -> None:
    state = requests(A)
    send(state)
    with pytest.raises(ValueError, match="a request 1 is pending"):
        send(state)


def test_pending_requests_have_a_limit_in_all_and_for_each_peer() -> None:
    state = requests(C, limits=DomainRequestLimits(pending=3, pending_of_peer=2))
    overflow = ResultCode.OVERFLOW
    for number in (1, 2):
        assert state.receive_request(asked(A, number=number), A, NOW, 0)[0] == SendDomainRecord(
            C, asked(A, ME, number=number)
        )
    refusal = SendDomainRecord(A, DomainRefusal(A, 3, overflow))
    assert state.receive_request(asked(A, number=3), A, NOW, 0) == [refusal]
    assert send(state) == [SendDomainRecord(C, asked(ME))]
    assert send(state, number=2) == [DomainEnded(2, overflow)]
    refusal = SendDomainRecord(B, DomainRefusal(B, 1, overflow))
    assert state.receive_request(asked(B), B, NOW, 0) == [refusal]
    assert state.receive_refusal(DomainRefusal(A, 1, overflow), C, 0) != []
    assert state.receive_refusal(DomainRefusal(A, 2, overflow), C, 0) != []
    assert state.receive_request(asked(A, number=3), A, NOW, 0) != [refusal]


def test_requests_that_were_served_are_forgotten_at_the_limit() -> None:
    state = requests(ME, limits=DomainRequestLimits(remembered=1))
    state.serve(DOMAIN)
    for number in (1, 2):
        request = asked(A, number=number)
        assert state.receive_request(request, A, NOW, 0) == [ServeDomainRequest(request)]
        state.answer(request, OK, WORDS, b"")
    assert state.counters.forgotten == 1


def test_bodies_of_requests_of_this_node_have_a_limit() -> None:
    state = requests(A, limits=DomainRequestLimits(pending_size=MAX_BODY))
    assert state.send(DOMAIN, 1, EXPIRY, WORDS, bytes(MAX_BODY), 0) != []
    assert send(state, number=2) == [DomainEnded(2, ResultCode.OVERFLOW)]
    # Those of others are not kept.
    state.receive_request(replace(asked(B), body=bytes(MAX_BODY)), B, NOW, 0)
    state.receive_response(answered(A, ME), A)
    assert send(state, number=2) == [SendDomainRecord(A, asked(ME, number=2))]


def test_what_was_not_taken_is_refused_with_its_reason() -> None:
    state = requests(ME)
    state.serve(DOMAIN)
    request = asked(A)
    assert state.receive_request(request, A, NOW, 0) == [ServeDomainRequest(request)]
    denied = ResultCode.DENIED
    assert state.not_sent(request, 0, denied) == [SendDomainRecord(A, DomainRefusal(A, 1, denied))]


def test_threat_21_requests_of_what_is_banned_end_in_doubt() -> None:
    state = requests(C)
    send(state)
    state.receive_request(asked(A, B), B, NOW, 0)
    failed = answered(ME, B, A, result=FAILED)
    assert state.end(A) == [SendDomainRecord(B, failed)]
    state.receive_request(asked(A, B, number=2), B, NOW, 0)
    assert state.end(B) == []
    assert state.end(B) == []
    assert state.end(C) == [DomainEnded(1, FAILED, in_doubt=True)]
    assert len(state) == 0


def test_threat_21_what_is_served_ends_in_doubt_when_its_domain_is_banned() -> None:
    state = requests(ME)
    state.serve(DOMAIN)
    state.receive_request(asked(A, B), B, NOW, 0)
    failed = answered(ME, B, A, result=FAILED)
    assert state.end(DOMAIN) == [SendDomainRecord(B, failed)]
    assert state.answer(asked(A, B), OK, WORDS, b"") == []
