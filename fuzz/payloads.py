"""Send random and mutated bytes to the decoders of payloads.

Each target is one decoder, or several with a common format: BARE values, CBOR, JSON, BARE strings,
the requests and responses of services, error replies, tracing texts and trace reports. The
invariant: a value, or the decoder's documented error (for error replies and tracing texts `None`)
with a short printable text; no other error is raised. A value that was read is written, and read
again as the same. A value with only one form is written as it was. The process does not grow.

    python fuzz/payloads.py --count 1000000 --seed 1 --target cbor
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, mutated, noise, run

from onward.protocol import (
    ERROR_SOURCE,
    Address,
    ErrorReply,
    HopOutcome,
    HopReport,
    MalformedMessage,
    Message,
    TraceMark,
    decode_hop_report,
    encode_error_reply,
    encode_hop_report,
    read_error_reply,
    read_tracing,
    route,
    trace_mark_of,
    with_trace_mark,
    write_tracing,
)
from onward.protocol.bare import BareError, BareReader, encode_data, encode_string, encode_uint
from onward.protocol.payloads import BARE_STRING, CBOR, JSON, Codec, PayloadError
from onward.protocol.services import (
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    ServiceError,
    ServiceInfo,
    decode_metadata,
    decode_request,
    decode_response,
    decode_service,
    decode_services,
    decode_subscription,
    encode_metadata,
    encode_request,
    encode_response,
    encode_services,
    encode_subscription,
)

# Bytes at the limits of a format; a mutation puts some anywhere.
NUMBERS = [
    bytes.fromhex(text)
    for text in ("00", "01", "7f", "80", "8000", "8001", "ff", "ff" * 9 + "01", "ff" * 9 + "02")
]
CBOR_HEADERS = [
    bytes.fromhex(text)
    for text in (
        *("17", "1818", "18ff", "190100", "1affffffff", "1bffffffffffffffff", "1c", "1f", "20"),
        *("3bffffffffffffffff", "40", "4161", "58ff", "5affffffff", "5bffffffffffffffff", "5f"),
        *("60", "61ff", "62c328", "63eda080", "7f", "80", "81", "98ff", "9affffffff", "9f", "a0"),
        *("a1", "b8ff", "bbffffffffffffffff", "bf", "c0", "c1", "c2", "c249010000000000000000"),
        *("d81c", "d81d00", "d9d9f7", "e0", "f4", "f5", "f6", "f7", "f818", "f8ff", "f90000"),
        *("f97c00", "f97e00", "fa47c35000", "fb7ff8000000000000", "fc", "ff"),
    )
]
JSON_PIECES = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a":', b"\\", b"\\u", b"\\ud800", b"\\udc00"),
    *(b"null", b"true", b"NaN", b"Infinity", b"-", b"1e999", b"1E-999", b"0.1", b"-0", b"00"),
    *(b"9" * 40, b"\x00", b"\x1f", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" \t\n", b"[" * 40),
]


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder with its seeds, its mutations and its invariant.

    Attributes:
        seeds: Inputs that are valid, or nearly so.
        pieces: Bytes that a mutation puts anywhere.
        check: Returns whether an input was accepted; raises if the invariant is broken.
    """

    seeds: list[bytes]
    pieces: list[bytes]
    check: Callable[[bytes], bool]


def made(random: Random, target: Target) -> bytes:
    if random.random() < 0.05:
        return noise(random)
    return mutated(random, target.seeds, target.pieces, changes=1)


def same(read: object, again: object) -> None:
    # Compared by their text, as NaN is not equal to itself.
    if repr(read) != repr(again):
        raise AssertionError(f"{read!r} was written, and {again!r} read again")


# --- BARE -------------------------------------------------------------------------------------


def check_bare(data: bytes) -> bool:
    """Read the values that the first byte selects; each of them has only one form."""
    plan, reader = data[0] if data else 0, BareReader(data, 1)
    written = data[:1]
    try:
        for _ in range(plan & 3):
            kind = plan >> 2 & 3
            plan >>= 2
            if kind == 0:
                written += encode_uint(reader.uint())
            elif kind == 1:
                written += encode_string(reader.string())
            else:
                written += encode_data(reader.data())
        reader.finish()
    except BareError as error:
        check_text_of(error)
        return False
    if written != data:
        raise AssertionError(f"written as {written.hex()}")
    return True


def bare_seeds() -> list[bytes]:
    values = [encode_uint(300), encode_string("grün"), encode_data(bytes(200))]
    return [
        b"\x01" + values[0],
        b"\x05" + values[1],
        b"\x09" + values[2],
        bytes((0b10_0100_11,)) + values[0] + values[1] + values[2],
    ]


# --- codecs -----------------------------------------------------------------------------------


def check_codec(codec: Codec, data: bytes) -> bool:
    try:
        value = codec.decode(data, object)
    except PayloadError as error:
        check_text_of(error)
        return False
    same(value, codec.decode(codec.encode(value), object))
    return True


PLAIN: Final[list[object]] = [
    None,
    {"item": "tea", "count": 2, "price": 1.5, "tags": ["a", "b", None, True]},
    [[[[]]], {}, "", -1, 1e300, "\U0001f600"],
    {"a": {"b": {"c": [1, 2, {"d": "x" * 30}]}}},
]
BINARY: Final[list[object]] = [*PLAIN, b"bytes", {1: b"x", b"k": 2, "t": b""}]


# --- services ---------------------------------------------------------------------------------

SERVICE = ServiceInfo("printer", route("1#10.0.0.1:4000 => printer"), {"floor": b"2", "": b""})


def check_services(data: bytes) -> bool:
    """Read an input with every decoder of a service's requests and responses."""
    taken = False
    for read, write in SERVICES:
        try:
            found = read(data)
        except ServiceError as error:
            check_text_of(error)
            continue
        taken = True
        same(found, read(write(found)))
    return taken


def write_subscription(found: tuple[str, str]) -> bytes:
    return encode_subscription(*found)


SERVICES: Final[list[tuple[Callable[[bytes], object], Callable[..., bytes]]]] = [
    (decode_request, encode_request),
    (decode_response, encode_response),
    (decode_service, encode_services),
    (decode_services, encode_services),
    (decode_metadata, encode_metadata),
    (decode_subscription, write_subscription),
]


def service_seeds() -> list[bytes]:
    body = encode_services(SERVICE)
    request = encode_request(ApiRequest(7, "printer", Method.PUT, encode_metadata({"a": b"b"})))
    return [
        request,
        request[1:] if request[0] < 0x80 else request[2:],
        encode_request(ApiRequest(0, "", Method.GET)),
        encode_response(ApiResponse(8, 7, ResponseStatus.OK, body)),
        encode_response(ApiResponse(8, 7, ResponseStatus.NOT_FOUND)),
        body,
        encode_services([SERVICE, SERVICE]),
        encode_metadata({"floor": b"2", "colour": b"yes"}),
        encode_subscription("screen 1", "weather"),
    ]


# --- error replies and traces -----------------------------------------------------------------


def check_error_reply(data: bytes) -> bool:
    message = Message(route("app"), (ERROR_SOURCE,), data)
    reply = read_error_reply(message)
    if reply is None:
        return False
    if encode_error_reply(reply) != data:
        raise AssertionError(f"{reply} is written otherwise")
    return True


def check_tracing(data: bytes) -> bool:
    """Read a text and its mark; add another mark and check that the other fields are kept."""
    text = data.decode("utf-8", "replace")
    fields = read_tracing(text)
    if fields is None:
        return False
    written = write_tracing(fields)
    if written is not None:
        same(fields, read_tracing(written))
    mark = trace_mark_of(fields) or MARK
    marked = with_trace_mark(fields, mark.next("0" * 16))
    if marked is not None:
        again = read_tracing(marked)
        if again is None or {**fields, "onward": again["onward"]} != again:
            raise AssertionError(f"what was beside the mark: {again}")
        found = trace_mark_of(again)
        if found != mark.next("0" * 16) and mark.depth < 256:
            raise AssertionError(f"the mark {mark} was read as {found}")
    return True


MARK = TraceMark("0123456789abcdef" * 2, "fedcba9876543210", 3, Address(0, b"tracer"))


def tracing_seeds() -> list[bytes]:
    parent = {"traceparent": "00-" + "4bf92f3577b34da6" * 2 + "-00f067aa0ba902b7-01"}
    return [
        json.dumps(parent).encode(),
        json.dumps({**parent, "tracestate": "a=b,c=d", "onward": str(MARK)}).encode(),
        (with_trace_mark({"é": "grün"}, MARK) or "").encode(),
    ]


def check_report(data: bytes) -> bool:
    try:
        report = decode_hop_report(data)
    except MalformedMessage as error:
        check_text_of(error)
        return False
    same(report, decode_hop_report(encode_hop_report(report)))
    return True


REPORT = HopReport(
    trace=MARK.trace,
    hop=MARK.hop,
    before="00" * 8,
    depth=4,
    node_id="11" * 8,
    node="near",
    worker=Address(0, b"relay"),
    kind="Forwarder",
    taken=1_700_000_000_000_000_000,
    handled=None,
    outcome=HopOutcome.AWAITS,
    onward_route=route("relay => echo"),
    return_route=route("1#127.0.0.1:4000 => app"),
    size=5,
)


TARGETS: Final = {
    "bare": Target(bare_seeds(), NUMBERS, check_bare),
    "cbor": Target(
        [CBOR.encode(each) for each in BINARY],
        CBOR_HEADERS,
        lambda data: check_codec(CBOR, data),
    ),
    "json": Target(
        [JSON.encode(each) for each in PLAIN], JSON_PIECES, lambda data: check_codec(JSON, data)
    ),
    "bare-string": Target(
        [BARE_STRING.encode("hello"), BARE_STRING.encode("é" * 100)],
        NUMBERS,
        lambda data: check_codec(BARE_STRING, data),
    ),
    "services": Target(service_seeds(), [*CBOR_HEADERS, *NUMBERS, b":"], check_services),
    "error-replies": Target(
        [
            encode_error_reply(ErrorReply("no such worker", Address(0, b"echo"), certain=True)),
            encode_error_reply(ErrorReply("x" * 90, Address(255, b"\x00" * 300), certain=False)),
        ],
        [*NUMBERS, b"\n", b"\xc2\x85"],
        check_error_reply,
    ),
    "tracing": Target(tracing_seeds(), [*JSON_PIECES, b"-256 ", b"-999 ", b"0#a"], check_tracing),
    "trace-reports": Target([encode_hop_report(REPORT)], CBOR_HEADERS, check_report),
}


def tried(name: str, target: Target, count: int, seed: int) -> bool:
    def make(random: Random, number: int) -> bytes:
        return target.seeds[number] if number < len(target.seeds) else made(random, target)

    return run(name, count, seed, make, lambda _, data: target.check(data))


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__, count=50_000)
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this one")
    options = parser.parse_args(arguments)
    chosen = {options.target: TARGETS[options.target]} if options.target else TARGETS
    held = [tried(name, target, options.count, options.seed) for name, target in chosen.items()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
