from __future__ import annotations

import pytest

from onward.actors import LimitReached
from onward.actors.access._exposures import Exposures
from onward.protocol import Address

LINK, LISTENER, A, B = (Address(0, name) for name in (b"link", b"listener", b"a", b"b"))


def is_empty(exposures: Exposures) -> bool:
    return not (exposures._at or exposures._where or exposures.error_replies)


def test_exposed_here_and_not_there() -> None:
    exposures = Exposures(2)
    exposures.add(LINK, A)
    assert exposures.has(A, (LINK,))
    assert exposures.has(A, (LISTENER, LINK))
    assert not exposures.has(A, (LISTENER,))
    assert not exposures.has(B, (LINK,))
    assert not exposures.has(A, ())


def test_the_limit_is_for_each_link() -> None:
    exposures = Exposures(1)
    exposures.add(LINK, A)
    exposures.add(LINK, A)
    exposures.add(LISTENER, B)
    with pytest.raises(LimitReached, match="the limit of 1 for exposed is reached"):
        exposures.add(LINK, B)
    assert exposures.remove(LINK, A)
    exposures.add(LINK, B)


def test_removed() -> None:
    exposures = Exposures(10)
    exposures.add(LINK, A)
    exposures.add(LISTENER, A)
    assert exposures.remove(LINK, A)
    assert not exposures.remove(LINK, A)
    assert not exposures.remove(LISTENER, B)
    assert exposures.has(A, (LISTENER,))
    assert exposures.remove(LISTENER, A)
    assert is_empty(exposures)


def test_what_stops_is_forgotten_in_both_roles() -> None:
    exposures = Exposures(10)
    for at in (LINK, LISTENER):
        for address in (A, B):
            exposures.add(at, address)
    exposures.error_replies.add(LINK)
    exposures.forget(A)
    assert not exposures.has(A, (LINK, LISTENER))
    assert exposures.has(B, (LINK,))
    exposures.forget(LINK)
    assert not exposures.has(B, (LINK,))
    assert exposures.has(B, (LISTENER,))
    exposures.forget(LISTENER)
    exposures.forget(LISTENER)
    assert is_empty(exposures)
