"""The limits of a client, and the URIs of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from onward.protocol.broker import Dialect
from onward.transports.client import ClientOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tries", 0),
        ("max_in_flight", 0),
        ("max_waiting", -1),
        ("max_queued", 0),
        ("max_pending", 1),
        ("max_request", 0),
        ("max_answer", 0),
        ("max_gathered", 0),
        ("max_streams", 0),
        ("stream_window", 0),
        ("stream_window", 2**31),
        ("credit_window", 0),
        ("connect_timeout", 0),
        ("request_timeout", 0),
        ("keepalive", 0),
        ("keepalive", float("nan")),
        ("lifetime", 20),
        ("lifetime", 3_000_000),
        ("lease_time", 0),
        ("lease_requests", -1),
        ("drain_timeout", 0),
        ("data_mime", "x" * 256),
        ("data_mime", "ä"),
        ("max_frame", 2**24),
        ("fragment_size", 63),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name if name != "max_pending" else "at least max_queued"):
        ClientOptions(**{name: value})


def test_any_time_may_be_allowed() -> None:
    assert ClientOptions(request_timeout=None).request_timeout is None


def test_the_dialect_says_the_mime_type() -> None:
    assert ClientOptions().mime == "message/x.rsocket.forwarding"
    assert ClientOptions(dialect=Dialect.REFERENCE).mime == "message/x.rsocket.broker.frame.v0"


def test_leases_are_on_where_there_are_some() -> None:
    assert not ClientOptions().leases
    assert ClientOptions(lease_requests=0).limits.lease
