"""The SASL layer of AMQP: what a client shows, and what is not one."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.transports.amqp._sasl import (
    AMQP_HEADER,
    MAX_BEHIND,
    MAX_SASL_FRAME,
    SASL_HEADER,
    Mechanism,
    SaslCredentials,
    SaslError,
    SaslServer,
    SaslState,
)

ALL = tuple(Mechanism)
OFFER = bytes.fromhex(
    "0000002b 02010000 005340 c01e01 e01b 03a3 09414e4f4e594d4f5553 05504c41494e 0845585445524e414c"
)
ACCEPTED = bytes.fromhex("00000010 02010000 005344 c003015000")
DENIED = bytes.fromhex("00000010 02010000 005344 c003015001")


def frame(body: bytes, *, kind: int = 1, offset: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), offset, kind, 0) + body


def init(*fields: bytes) -> bytes:
    content = b"".join(fields)
    return frame(b"\x00\x53\x41\xc0" + bytes((len(content) + 1, len(fields))) + content)


def symbol(text: bytes) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text


def binary(data: bytes) -> bytes:
    return b"\xa0" + bytes((len(data),)) + data


PLAIN = init(symbol(b"PLAIN"), binary(b"boss\0ann\0secret"), b"\xa1\x01h")
ANN = SaslCredentials(Mechanism.PLAIN, "ann", "secret", "boss", "h")


def begun(*mechanisms: Mechanism) -> SaslServer:
    server = SaslServer(mechanisms or ALL)
    assert server.receive(SASL_HEADER) is None
    server.data_to_send()
    return server


def test_plain_is_read_and_decided() -> None:
    server = SaslServer(ALL)
    assert server.receive(SASL_HEADER) is None
    assert server.data_to_send() == SASL_HEADER + OFFER
    assert server.receive(PLAIN + AMQP_HEADER) == ANN
    assert (server.data_to_send(), server.behind()) == (b"", b"")
    server.decide(accepted=True)
    assert server.data_to_send() == ACCEPTED
    assert server.state is SaslState.ACCEPTED
    assert (server.behind(), server.behind()) == (AMQP_HEADER, b"")


def test_nothing_is_kept_of_what_comes_after_the_layer() -> None:
    server = begun()
    server.receive(PLAIN)
    server.decide(accepted=True)
    with pytest.raises(AssertionError, match="what comes is not of this layer any more"):
        server.receive(b"more")
    assert server.behind() == b""


def test_a_layer_without_mechanisms_is_none() -> None:
    # AMQP 1.0, part 5, section 5.3.3.1: "It is invalid for this list to be null or empty."
    with pytest.raises(ValueError, match="no mechanism"):
        SaslServer(())


def test_every_byte_may_come_alone() -> None:
    server = SaslServer(ALL)
    data = SASL_HEADER + PLAIN + AMQP_HEADER
    found = [server.receive(data[at : at + 1]) for at in range(len(data))]
    assert [each for each in found if each] == [ANN]
    assert found[len(data) - len(AMQP_HEADER) - 1] == ANN
    server.decide(accepted=True)
    assert server.data_to_send() == SASL_HEADER + OFFER + ACCEPTED
    assert server.behind() == AMQP_HEADER


@pytest.mark.parametrize(
    ("data", "credentials"),
    [
        (init(symbol(b"ANONYMOUS")), SaslCredentials(Mechanism.ANONYMOUS)),
        (init(symbol(b"ANONYMOUS"), binary(b"trace")), SaslCredentials(Mechanism.ANONYMOUS)),
        (init(symbol(b"EXTERNAL"), b"\x40"), SaslCredentials(Mechanism.EXTERNAL)),
        (
            init(symbol(b"EXTERNAL"), binary(b"ann"), b"\x40"),
            SaslCredentials(Mechanism.EXTERNAL, acts_as="ann"),
        ),
        (
            # The long forms: of the descriptor, of the list and of each field.
            frame(
                b"\x00\x80"
                + bytes((0,) * 7 + (0x41, 0xD0))
                + struct.pack(">II", 4 + 10 + 11, 2)
                + b"\xb3\0\0\0\x05PLAIN\xb0\0\0\0\x06\0ann\0p"
            ),
            SaslCredentials(Mechanism.PLAIN, "ann", "p"),
        ),
        (
            # An extended header, which is passed over.
            frame(b"\0\0\0\0" + init(symbol(b"ANONYMOUS"))[8:], offset=3),
            SaslCredentials(Mechanism.ANONYMOUS),
        ),
    ],
)
def test_all_mechanisms_are_read(data: bytes, credentials: SaslCredentials) -> None:
    assert begun().receive(data) == credentials


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(ANN)


@pytest.mark.parametrize(
    "fields",
    [
        (symbol(b"SCRAM-SHA-1"),),
        (symbol(b"plain"), binary(b"\0a\0p")),
        (symbol(b"PLAIN"),),
        (symbol(b"PLAIN"), binary(b"ann")),
        (symbol(b"PLAIN"), binary(b"\0\0p")),
        (symbol(b"PLAIN"), binary(b"\0a\0")),
        (symbol(b"PLAIN"), binary(b"\0a\0p\0q")),
        (symbol(b"PLAIN"), binary(b"\0a\0\xff")),
    ],
)
def test_what_is_no_offered_mechanism_is_refused(fields: tuple[bytes, ...]) -> None:
    server = begun()
    assert server.receive(init(*fields) + AMQP_HEADER) is None
    assert (server.state, server.data_to_send()) == (SaslState.REFUSED, DENIED)
    assert server.receive(PLAIN) is None
    assert server.behind() == server.data_to_send() == b""


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    server = begun(Mechanism.ANONYMOUS)
    assert server.receive(PLAIN) is None
    assert server.data_to_send() == DENIED


def test_the_caller_refuses() -> None:
    server = begun()
    assert server.receive(PLAIN) == ANN
    server.decide(accepted=False)
    assert (server.state, server.data_to_send()) == (SaslState.REFUSED, DENIED)
    with pytest.raises(AssertionError, match="there is nothing to decide"):
        server.decide(accepted=True)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "amqp:connection:framing-error: no header of AMQP 1.0"),
        (b"AMQQ", "amqp:connection:framing-error: no header of AMQP 1.0 with SASL"),
        (b"AMQP\x00\x00\x09\x01", "amqp:connection:framing-error: no header of AMQP 1.0"),
        (AMQP_HEADER, "amqp:connection:policy-error: SASL is required"),
    ],
)
def test_another_header_is_answered_with_the_right_one(data: bytes, error: str) -> None:
    server = SaslServer(ALL)
    with pytest.raises(SaslError, match=f"^{error}"):
        server.receive(data)
    assert (server.state, server.data_to_send()) == (SaslState.REFUSED, SASL_HEADER)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(b"", kind=0), "no SASL frame"),
        (frame(b"", offset=1), "no SASL frame"),
        (frame(b"", offset=3), "no SASL frame"),
        (struct.pack(">IBBH", 513, 2, 1, 0), "a SASL frame of 513 bytes, over 512"),
        (b"\xff\xff\xff\xff\x02\x01\0\0", "a SASL frame of 4294967295 bytes, over 512"),
        (frame(b""), "a frame is cut short"),
        (frame(b"\x01\x53\x41\x45"), "a frame without a type"),
        (frame(b"\x00\x53\x40\x45"), "another frame than the choice of a mechanism"),
        (frame(b"\x00\x53\x41\xa0"), "a frame without a list"),
        (frame(b"\x00\x53\x41\xc0\x09\x01"), "a list of another size than its frame"),
        (frame(b"\x00\x53\x41\x45"), "0 fields of a choice of a mechanism"),
        (init(*[b"\x40"] * 4), "4 fields of a choice of a mechanism"),
        (init(b"\x40"), "no mechanism"),
        (init(binary(b"PLAIN")), "a field of another type"),
        (init(b"\xc3\x01P"), "a field of another type"),
        (init(b"\xa3\x09PLAIN"), "a frame is cut short"),
        (init(symbol(b"PLAIN") + b"\x40"), "bytes behind the last field"),
    ],
)
def test_a_bad_frame_is_an_error(data: bytes, reason: str) -> None:
    server = begun()
    with pytest.raises(SaslError) as caught:
        server.receive(data)
    assert caught.value.condition == "amqp:connection:framing-error"
    assert caught.value.reason == reason
    assert server.state is SaslState.REFUSED


def test_what_is_kept_before_the_decision_is_bounded() -> None:
    server = begun()
    assert server.receive(PLAIN) == ANN
    server.receive(bytes(MAX_BEHIND))
    with pytest.raises(SaslError, match=r"amqp:resource-limit-exceeded: over 8192 bytes"):
        server.receive(b"x")
    assert server.state is SaslState.REFUSED
    assert MAX_SASL_FRAME == 512


@given(st.binary(max_size=80))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    server = begun()
    try:
        server.receive(frame(data))
    except SaslError:
        assert server.state is SaslState.REFUSED


@pytest.mark.peer
@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        ("ANONYMOUS", SaslCredentials(Mechanism.ANONYMOUS)),
        ("PLAIN", SaslCredentials(Mechanism.PLAIN, "ann", "secret")),
    ],
)
@pytest.mark.parametrize("accepted", [True, False])
def test_the_client_of_proton_is_let_in_or_not(
    mechanism: str, expected: SaslCredentials, accepted: bool
) -> None:
    proton: Any = pytest.importorskip(
        "proton", reason="needs python-qpid-proton, built by a compiler"
    )
    transport, connection = proton.Transport(proton.Transport.CLIENT), proton.Connection()
    if mechanism == "PLAIN":
        connection.user, connection.password = "ann", "secret"
    sasl = transport.sasl()
    sasl.allowed_mechs(mechanism)
    sasl.allow_insecure_mechs = True
    transport.bind(connection)
    connection.open()
    server = SaslServer(ALL)
    found: SaslCredentials | None = None
    for _ in range(4):
        if (size := transport.pending()) > 0 and server.state is not SaslState.ACCEPTED:
            found = server.receive(bytes(transport.peek(size))) or found
            transport.pop(size)
        if server.state is SaslState.DECISION:
            server.decide(accepted)
        if answer := server.data_to_send():
            transport.push(answer)
    assert found == expected
    assert sasl.outcome == (proton.SASL.OK if accepted else proton.SASL.AUTH)
    behind = server.behind() + bytes(transport.peek(max(transport.pending(), 0)) or b"")
    assert behind.startswith(AMQP_HEADER if accepted else b"")
    transport.unbind()
