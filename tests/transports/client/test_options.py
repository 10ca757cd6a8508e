"""The limits of a client, and the URIs of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from onward.protocol.broker import Dialect
from onward.transports.client import ClientOptions, KeepaliveOptions, LoadOptions, PayloadOptions
from onward.transports.rsocket import LeaseOptions


@pytest.mark.parametrize(
    ("made", "given", "match"),
    [
        (LoadOptions, {"max_pending": 1}, "at least max_queued"),
        (KeepaliveOptions, {"lifetime": 20}, "longer than interval"),
        (KeepaliveOptions, {"lifetime": 3_000_000}, "lifetime"),
        (PayloadOptions, {"max_frame": 2**24}, "max_frame"),
        (ClientOptions, {"stream_window": 2**31}, "stream_window"),
        (ClientOptions, {"data_mime": "x" * 256}, "data_mime"),
        (ClientOptions, {"data_mime": "ä"}, "data_mime"),
    ],
)
def test_what_is_out_of_range_is_refused(made: type, given: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        made(**given)


def test_any_time_may_be_allowed() -> None:
    assert ClientOptions(request_timeout=None).request_timeout is None


def test_the_dialect_says_the_mime_type() -> None:
    assert ClientOptions().mime == "message/x.rsocket.forwarding"
    assert ClientOptions(dialect=Dialect.REFERENCE).mime == "message/x.rsocket.broker.frame.v0"


def test_leases_are_on_where_there_are_some() -> None:
    assert not ClientOptions().limits.lease
    assert ClientOptions(lease=LeaseOptions()).limits.lease
