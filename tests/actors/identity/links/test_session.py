"""A session with another node, as the link below it fails."""

from __future__ import annotations

import pytest

from onward.actors import Node
from onward.protocol import LinkDown, OnwardError
from tests.support.identities import attached, joined
from tests.support.transports import eventually


async def test_a_session_that_is_closed_for_a_failure_fails_each_record_once(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    session = ours._router.peers.sessions[theirs.own]
    failed: list[OnwardError] = []

    def refuse(*_: object, **__: object) -> None:
        raise LinkDown("there", "a test")

    def close(error: OnwardError) -> None:
        failed.append(error)
        session.close()

    monkeypatch.setattr(type(session._worker), "send", refuse)
    session.put(b"1", close)
    session.put(b"2", failed.append)
    await eventually(lambda: len(failed) == 2)
    assert not session.waiting
