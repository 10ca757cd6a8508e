from __future__ import annotations

from onward.actors.sessions._pending import PendingMessages
from onward.protocol import Message, route


def message(payload: bytes) -> Message:
    return Message(route("s => echo"), (), payload)


def test_it_is_bounded_in_number_and_bytes() -> None:
    kept = PendingMessages(limit=3, max_bytes=10, keep_for=5)
    assert (len(kept), kept.due_at) == (0, None)
    assert kept.put(message(b"12345"), now=1)
    assert not kept.put(message(b"123456"), now=2)
    assert kept.put(message(b"12345"), now=2)
    assert kept.put(message(b""), now=3)
    assert not kept.put(message(b""), now=3)
    assert (len(kept), kept.due_at) == (3, 6)
    assert kept.take().payload == b"12345"
    assert kept.due_at == 7
    assert kept.put(message(b"54321"), now=4)


def test_what_is_put_back_comes_first_and_keeps_its_time() -> None:
    kept = PendingMessages(limit=3, max_bytes=10, keep_for=5)
    kept.put(message(b"first"), now=0)
    kept.put(message(b"more"), now=1)
    until = kept.due_at
    assert until == 5
    kept.put_back(kept.take(), until)
    assert (kept.due_at, kept.take().payload, kept.take().payload) == (5, b"first", b"more")
