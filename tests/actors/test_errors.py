from __future__ import annotations

import pytest

from onward.actors import (
    BadHandler,
    LimitReached,
    NodeNotStarted,
    RoutingLoop,
    TooManyRequests,
    UnknownScheme,
    WouldDeadlock,
)
from onward.protocol import NodeStopped, NotDelivered, OnwardError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LimitReached("timers", 3), "the limit of 3 timers is reached"),
        (RoutingLoop("9#x", "more than 8 times"), "rerouted too often: 9#x (more than 8 times)"),
        (TooManyRequests("echo"), "too many requests in flight: echo"),
        (UnknownScheme("ftp://x", ("a", "b")), "no transport for 'ftp://x'; there are: a, b"),
        (UnknownScheme("ftp://x", ()), "no transport for 'ftp://x'; there are: none"),
        (
            UnknownScheme("tcp:x", ("tcp",)),
            "'tcp:x' is no URI of a transport: it does not say SCHEME://",
        ),
        (NodeNotStarted("n"), "node not started: n"),
        (BadHandler("Class.handle", "it yields"), "Class.handle: it yields"),
        (WouldDeadlock("f()", "waits for itself"), "f() waits for itself"),
        (WouldDeadlock("f()"), "f() would block the event loop it waits for; await it instead"),
    ],
)
def test_text(error: OnwardError, text: str) -> None:
    assert str(error) == text


def test_place_in_the_tree() -> None:
    assert issubclass(RoutingLoop, NotDelivered)
    assert issubclass(TooManyRequests, NotDelivered)
    assert issubclass(UnknownScheme, ValueError)
    assert issubclass(WouldDeadlock, RuntimeError)
    assert issubclass(BadHandler, TypeError)
    assert issubclass(NodeNotStarted, NodeStopped)
