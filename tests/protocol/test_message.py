from __future__ import annotations

from typing import cast

import pytest

from onward.protocol import (
    MAX_ROUTE_LENGTH,
    Context,
    EmptyRoute,
    Message,
    Outside,
    PayloadNotBytes,
    RouteTooLong,
    address,
    check_bytes,
    route,
)

ME, OTHER = address("me"), address("other")
CONTEXT = Context(deadline=1.0, trace="t", meta={"k": 1})
MESSAGE = Message(route("me", "next"), route("sender"), b"p", address("sender"), CONTEXT)


def test_forward_takes_me_off_and_leaves_me_on_the_way_back() -> None:
    # The specification's example: {[forwarder, next], [sender]} -> {[next], [forwarder, sender]}.
    assert MESSAGE.forward() == Message(route("next"), route("me", "sender"), b"p", ME, CONTEXT)


def test_forward_may_leave_another_of_my_addresses() -> None:
    forwarded = MESSAGE.forward(OTHER)
    assert forwarded.return_route == route("other", "sender")
    assert forwarded.source == ME


def test_step_leaves_no_trace() -> None:
    assert MESSAGE.step() == Message(route("next"), route("sender"), b"p", ME, CONTEXT)


def test_reply_swaps_the_routes() -> None:
    # {[responder], [something, sender]} -> {[something, sender], [responder]}.
    asked = Message(route("me"), route("something", "sender"), b"q", None, CONTEXT)
    assert asked.reply(b"a") == Message(
        route("something", "sender"), route("me"), b"a", ME, CONTEXT
    )
    assert asked.reply(b"a", OTHER).return_route == (OTHER,)


def test_redirect_replaces_the_first_address() -> None:
    assert MESSAGE.redirect(OTHER).onward_route == route("other", "next")
    assert MESSAGE.redirect(OTHER, ME).onward_route == route("other", "me", "next")
    assert MESSAGE.redirect().onward_route == route("next")
    assert MESSAGE.redirect(OTHER)[1:] == MESSAGE[1:]


def test_who_has_the_message() -> None:
    assert MESSAGE.to == ME
    with pytest.raises(EmptyRoute):
        _ = Message((), (), b"").to


@pytest.mark.parametrize("onward", [(), route("me")])
def test_nowhere_to_go_on_to(onward: tuple[()]) -> None:
    message = MESSAGE._replace(onward_route=onward)
    for move in (message.forward, message.step, message.redirect):
        with pytest.raises(EmptyRoute):
            move()


def test_no_way_back() -> None:
    with pytest.raises(EmptyRoute):
        MESSAGE._replace(return_route=()).reply(b"a")


def test_routes_do_not_grow_over_the_limit() -> None:
    full = MESSAGE._replace(return_route=route("a") * MAX_ROUTE_LENGTH)
    with pytest.raises(RouteTooLong) as caught:
        full.forward()
    assert (caught.value.length, caught.value.limit) == (65, 64)
    assert full.step().return_route == full.return_route
    long = MESSAGE._replace(onward_route=route("a") * MAX_ROUTE_LENGTH)
    assert len(long.redirect(ME).onward_route) == MAX_ROUTE_LENGTH
    with pytest.raises(RouteTooLong):
        long.redirect(ME, OTHER)


def test_text() -> None:
    assert str(MESSAGE) == "[0#me => 0#next] <- [0#sender] 1 byte"
    assert str(MESSAGE._replace(payload=cast("bytes", "p"))).endswith(" str in place of bytes")


def test_an_answer_is_not_restricted_by_what_was_asked_from_outside() -> None:
    context = CONTEXT._replace(outside=Outside(1, bool))
    asked = MESSAGE._replace(context=context)
    assert asked.forward().context is context
    assert asked.reply(b"a").context == CONTEXT


def test_a_payload_is_bytes_that_cannot_change() -> None:
    check_bytes(b"p")
    for other in (bytearray(b"p"), memoryview(b"p"), "p", None):
        with pytest.raises(PayloadNotBytes, match=type(other).__name__):
            check_bytes(other)


def test_what_a_message_from_outside_may_do_is_compared_by_its_count_alone() -> None:
    one, same, other = Outside(1, bool), Outside(1, callable), Outside(2, bool)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != (1, bool)
    assert repr(one) == "Outside(given=1)"
