"""The payloads of watches."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol import Address
from onward.protocol.payloads import CBOR
from onward.protocol.services import (
    MAX_WATCH_TOKEN,
    ServiceError,
    WatchNotice,
    WatchRequest,
    WatchState,
    decode_watch_notice,
    decode_watch_request,
    encode_watch_notice,
    encode_watch_request,
)

TOKENS = st.binary(min_size=1, max_size=MAX_WATCH_TOKEN)
ADDRESSES = st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=40))


@given(TOKENS, ADDRESSES, st.booleans())
def test_reading_a_request_is_the_inverse_of_writing(
    token: bytes, address: Address, renews: bool
) -> None:
    request = WatchRequest(token, address, renews)
    assert decode_watch_request(encode_watch_request(request)) == request


@pytest.mark.parametrize("state", WatchState)
def test_reading_a_notice_is_the_inverse_of_writing(state: WatchState) -> None:
    notice = WatchNotice(b"token", state)
    assert decode_watch_notice(encode_watch_notice(notice)) == notice


REQUESTS: list[tuple[Any, str]] = [
    (7, "a request to watch is no list"),
    ([b"t", 0, b"a"], "not a request to watch"),
    ([b"", 0, b"a", True], "a token of a watch is 1 to 64 bytes"),
    ([b"t" * 65, 0, b"a", True], "a token of a watch is 1 to 64 bytes"),
    (["t", 0, b"a", True], "a token of a watch is 1 to 64 bytes"),
    ([b"t", True, b"a", True], "fields of other types"),
    ([b"t", 0, "a", True], "fields of other types"),
    ([b"t", 0, b"a", 1], "fields of other types"),
    ([b"t", 256, b"a", True], "an address of type 256"),
    ([b"t", 0, b"", True], "an address of type 0 with 0 bytes"),
]


@pytest.mark.parametrize(("value", "words"), REQUESTS)
def test_wrong_requests(value: Any, words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        decode_watch_request(CBOR.encode(value))


@pytest.mark.parametrize("value", [[b"t"], [b"t", 9], [b"t", True], [b"t", "0"], {}, None])
def test_wrong_notices(value: Any) -> None:
    with pytest.raises(ServiceError, match="notice of a watch"):
        decode_watch_notice(CBOR.encode(value))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for decode in (decode_watch_request, decode_watch_notice):
        with suppress(ServiceError):
            decode(payload)
