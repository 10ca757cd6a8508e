from __future__ import annotations

from typing import Any

import pytest
from cbor2 import dumps
from hypothesis import given, strategies as st

from onward.protocol import Address, route
from onward.protocol.services import (
    MAX_METADATA,
    MAX_METADATA_BYTES,
    ServiceError,
    ServiceInfo,
    decode_metadata,
    decode_service,
    decode_services,
    encode_metadata,
    encode_services,
)

ADDRESS = st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=40))
INFO = st.builds(
    ServiceInfo,
    st.text(min_size=1, max_size=40).filter(str.isprintable),
    st.lists(ADDRESS, max_size=4).map(tuple),
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), st.binary(max_size=9)),
)


@given(INFO, st.lists(INFO, max_size=3))
def test_reading_is_the_inverse_of_writing(one: ServiceInfo, several: list[ServiceInfo]) -> None:
    assert decode_service(encode_services(one)) == one
    assert decode_services(encode_services(several)) == tuple(several)
    assert decode_metadata(encode_metadata(one.metadata)) == one.metadata


def test_the_bytes_are_these() -> None:
    # {1: "p", 2: [[0, h'61']], 3: {"k": h'76'}}, derived by hand.
    written = encode_services(ServiceInfo("p", route("a"), {"k": b"v"})).hex()
    assert written == "a3 01 6170 02 81 82 00 4161 03 a1 616b 4176".replace(" ", "")


def test_no_body_is_nothing_known() -> None:
    assert ServiceInfo("p", ()).metadata == {}
    assert decode_metadata(b"") == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {str(number): b"" for number in range(MAX_METADATA + 1)},
        {"k": bytes(MAX_METADATA_BYTES)},
        {"k" * 256: b""},
    ],
)
def test_too_much_that_is_known(metadata: dict[str, bytes]) -> None:
    with pytest.raises(ServiceError):
        encode_metadata(metadata)
    with pytest.raises(ServiceError):
        decode_metadata(dumps(metadata))


@pytest.mark.parametrize("value", [[], {"k": "text"}, {1: b""}])
def test_what_is_known_is_text_to_bytes(value: object) -> None:
    with pytest.raises(ServiceError):
        decode_metadata(dumps(value))


def _any(*values: Any) -> list[Any]:
    return list(values)


GOOD: dict[int, Any] = {1: "p", 2: [[0, b"a"]], 3: {}}


@pytest.mark.parametrize(
    "value",
    _any(
        1,
        GOOD | {1: 7},
        GOOD | {1: ""},
        GOOD | {2: "a"},
        GOOD | {2: [[0, b"a"]] * 65},
        GOOD | {2: ["a"]},
        GOOD | {2: [[0]]},
        GOOD | {2: [[256, b"a"]]},
        GOOD | {2: [[True, b"a"]]},
        GOOD | {2: [[0, "a"]]},
        GOOD | {2: [[0, b""]]},
        GOOD | {3: []},
    ),
)
def test_a_service_that_is_none(value: object) -> None:
    with pytest.raises(ServiceError):
        decode_service(dumps(value))
    with pytest.raises(ServiceError):
        decode_services(dumps([value]))


@pytest.mark.parametrize("body", [b"", b"\xff", dumps({})])
def test_a_list_that_is_none(body: bytes) -> None:
    with pytest.raises(ServiceError):
        decode_services(body)
