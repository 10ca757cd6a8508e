"""What a broker's last ERROR means."""

from __future__ import annotations

import pytest

from onward.protocol.rsocket import ErrorCode, PeerError, RSocketError
from onward.transports._log import shown
from onward.transports.client._close_reason import CloseReason, last_word

REJECTED = PeerError("no", code=ErrorCode.REJECTED_SETUP)
TAKEN = PeerError("another connection has taken over its route id", code=ErrorCode.CONNECTION_ERROR)

JAVA = PeerError("RouteSetup not found in metadata", code=ErrorCode.REJECTED_SETUP)
BROKEN = RSocketError("odd")


@pytest.mark.parametrize(
    ("error", "ready", "said"),
    [
        (REJECTED, False, CloseReason(f"the broker says: {REJECTED}", refused=True)),
        (REJECTED, True, CloseReason(f"the broker says: {REJECTED}")),
        (TAKEN, True, CloseReason(f"the broker says: {TAKEN}", taken_over=True)),
        (BROKEN, False, CloseReason(f"the broker broke the protocol: {BROKEN}")),
    ],
)
def test_what_ends_a_connection(error: RSocketError, ready: bool, said: CloseReason) -> None:
    assert last_word(error, 60, ready=ready) == said


def test_a_java_broker_that_does_not_find_a_route_setup_is_met_with_a_hint() -> None:
    word = last_word(JAVA, 60, ready=False)
    assert word.refused
    assert word.reason.startswith(f"the broker says: {JAVA}; ")
    assert "dialect=Dialect.REFERENCE" in word.reason
    assert "service=" in word.reason
    # The log cuts longer texts.
    assert shown(word.reason) == word.reason
    assert "REFERENCE" not in last_word(JAVA, 60, ready=True).reason
