"""The chain for messages that no consumer takes."""

from __future__ import annotations

import pytest

from onward.protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    UNDELIVERABLE,
    Last,
    Outcome,
    Redirect,
    Retry,
    last_outcome,
    next_part,
)

RETRY, REDIRECT = Retry(), Redirect("34#rest")
CHAIN = (RETRY, REDIRECT, Last.DROP)


def test_a_chain_is_gone_through_in_its_order() -> None:
    assert next_part(CHAIN, None, redirected=False) == RETRY
    assert next_part(CHAIN, RETRY, redirected=False) == REDIRECT
    assert next_part(CHAIN, REDIRECT, redirected=False) is Last.DROP


def test_a_message_is_redirected_once() -> None:
    assert next_part(CHAIN, RETRY, redirected=True) is Last.DROP
    assert next_part((REDIRECT, Last.REJECT), None, redirected=True) is Last.REJECT


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(Last.RELEASE, RELEASED), (Last.DROP, ACCEPTED), (Last.REJECT, UNDELIVERABLE)],
)
def test_the_last_part_gives_the_outcome(last: Last, outcome: Outcome) -> None:
    assert last_outcome(last, settled=False) == outcome
    assert last_outcome(last, settled=True) is None
