"""The server's side of the SASL layer of AMQP 1.0, without I/O: bytes in, the credentials out.

Proton's own layer, where it is built without Cyrus SASL, offers ANONYMOUS and nothing else. So the
layer is here, in front of a Proton transport without one; what is behind it is returned as it is.

Mechanisms are ANONYMOUS (RFC 4505), PLAIN (RFC 4616), and EXTERNAL (RFC 4422, appendix A), none of
which has a challenge: the client's first frame has all there is. Whether what it says is true the
caller decides, which may take time. Until then at most `MAX_BEHIND` bytes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from typing import Final

__all__ = [
    "AMQP_HEADER",
    "MAX_BEHIND",
    "MAX_SASL_FRAME",
    "SASL_HEADER",
    "Mechanism",
    "SaslCredentials",
    "SaslError",
    "SaslServer",
    "SaslState",
]

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
"""The header of the SASL layer."""
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
"""The header of a connection."""

# AMQP 1.0, part 5, section 5.3.1: "The maximum size of a SASL frame is defined by
# MIN-MAX-FRAME-SIZE."
MAX_SASL_FRAME: Final = 512
"""Most bytes of a SASL frame."""

MAX_BEHIND: Final = 8192
"""Most bytes behind the SASL layer that are kept until there is a decision."""

_FRAME: Final = Struct(">IBBH")
_SASL_FRAME_TYPE: Final = 1
_INIT: Final = 0x41
_DESCRIPTORS: Final = (b"\x00\x53", b"\x00\x80")
_NULL: Final = 0x40
_SIZES: Final = {0xA: 1, 0xB: 4}
_BINARY, _STRING, _SYMBOL = 0, 1, 3


class Mechanism(Enum):
    """A mechanism of authentication."""

    ANONYMOUS = "ANONYMOUS"
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"


class SaslState(Enum):
    """The state of the layer."""

    HEADER = "the header of the layer is to come"
    INIT = "the choice of a mechanism is to come"
    DECISION = "the caller is to decide"
    ACCEPTED = "what comes is not of this layer any more"
    REFUSED = "the client was refused; nothing more is read"


class SaslError(Exception):
    """A client does not speak SASL as it has to. The connection has to be closed.

    It does not leave the edge, so it is none of the package's errors.

    Attributes:
        condition: The condition, as AMQP has it.
        reason: What is wrong, without any of the input.
    """

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(condition, reason)
        self.condition = condition
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.condition}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """The credentials that a client shows.

    Attributes:
        mechanism: The mechanism that it has chosen.
        name: Its name, of PLAIN; empty otherwise.
        password: Its password, of PLAIN.
        acts_as: The identity that it wants to act as; empty for its own.
        host: The name of the host that it wants to reach; empty if it does not say.
    """

    mechanism: Mechanism
    name: str = ""
    password: str = field(default="", repr=False)
    acts_as: str = ""
    host: str = ""


class SaslServer:
    """The server's side of the SASL layer of one connection.

    Args:
        mechanisms: The mechanisms that are offered, the preferred one first; one at least.

    Attributes:
        state: Its state.

    Raises:
        ValueError: There is no mechanism.
    """

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        # AMQP 1.0, part 5, section 5.3.3.1: "It is invalid for this list to be null or empty."
        if not mechanisms:
            raise ValueError("no mechanism is offered")
        self.state = SaslState.HEADER
        self._mechanisms = tuple(mechanisms)
        self._buffer = b""
        self._out = b""

    def data_to_send(self) -> bytes:
        """Return what has to be sent, once: also after an error."""
        made, self._out = self._out, b""
        return made

    def behind(self) -> bytes:
        """Return what came behind the layer, once; nothing before the client is accepted."""
        if self.state is not SaslState.ACCEPTED:
            return b""
        made, self._buffer = self._buffer, b""
        return made

    def receive(self, data: bytes) -> SaslCredentials | None:
        """Read bytes, and return the credentials when they are complete.

        Once the client is accepted, what comes is for the layer behind this one.

        A mechanism that is not offered, or a PLAIN response that is none, is refused at once.

        Raises:
            SaslError: They are not of this layer, or there are too many of them.
        """
        if self.state is SaslState.REFUSED:
            return None
        if self.state is SaslState.ACCEPTED:
            raise AssertionError(self.state.value)
        self._buffer += data
        try:
            if self.state is SaslState.HEADER:
                self._read_header()
            credentials = self._read_init() if self.state is SaslState.INIT else None
            self._check_behind()
        except SaslError:
            self._refuse()
            raise
        return credentials

    def decide(self, accepted: bool) -> None:
        """Accept or refuse the credentials."""
        if self.state is not SaslState.DECISION:
            raise AssertionError(f"there is nothing to decide: {self.state.value}")
        if accepted:
            self.state = SaslState.ACCEPTED
            self._out += _outcome(0)
        else:
            self._deny()

    def _read_header(self) -> None:
        found = self._buffer[: len(SASL_HEADER)]
        if not SASL_HEADER.startswith(found):
            # AMQP 1.0, part 2, section 2.2: "If the requested protocol version is not supported,
            # the server MUST send a protocol header with a supported protocol version and then
            # close the socket."
            self._out += SASL_HEADER
            if found == AMQP_HEADER:
                raise SaslError("amqp:connection:policy-error", "SASL is required")
            raise SaslError("amqp:connection:framing-error", "no header of AMQP 1.0 with SASL")
        if len(found) == len(SASL_HEADER):
            self._buffer = self._buffer[len(SASL_HEADER) :]
            self._out += SASL_HEADER + _offer(self._mechanisms)
            self.state = SaslState.INIT

    def _read_init(self) -> SaslCredentials | None:
        if len(self._buffer) < _FRAME.size:
            return None
        size, offset, kind, _ = _FRAME.unpack_from(self._buffer)
        if kind != _SASL_FRAME_TYPE or offset * 4 < _FRAME.size or size < offset * 4:
            raise _framing("no SASL frame")
        if size > MAX_SASL_FRAME:
            raise _framing(f"a SASL frame of {size} bytes, over {MAX_SASL_FRAME}")
        if len(self._buffer) < size:
            return None
        body, self._buffer = self._buffer[offset * 4 : size], self._buffer[size:]
        name, response, host = _init_fields(body)
        credentials = self._credentials(name, response, host)
        if credentials is None:
            self._deny()
        else:
            self.state = SaslState.DECISION
        return credentials

    def _credentials(self, name: str, response: bytes, host: str) -> SaslCredentials | None:
        mechanism = next((each for each in self._mechanisms if each.value == name), None)
        try:
            text = response.decode()
        except UnicodeDecodeError:
            return None
        if mechanism is Mechanism.PLAIN:
            # RFC 4616, section 2: "message = [authzid] UTF8NUL authcid UTF8NUL passwd"
            acts_as, *rest = text.split("\0")
            if len(rest) != 2 or not all(rest):
                return None
            return SaslCredentials(mechanism, rest[0], rest[1], acts_as, host)
        if mechanism is Mechanism.EXTERNAL:
            return SaslCredentials(mechanism, acts_as=text, host=host)
        # What comes with ANONYMOUS is a trace for people, and is not kept.
        return None if mechanism is None else SaslCredentials(mechanism, host=host)

    def _check_behind(self) -> None:
        if self.state is SaslState.DECISION and len(self._buffer) > MAX_BEHIND:
            raise SaslError(
                "amqp:resource-limit-exceeded", f"over {MAX_BEHIND} bytes before the outcome"
            )

    def _deny(self) -> None:
        # AMQP 1.0, part 5, section 5.3.3.6, code 1: "Connection authentication failed due to an
        # unspecified problem with the supplied credentials."
        self._out += _outcome(1)
        self._refuse()

    def _refuse(self) -> None:
        self.state = SaslState.REFUSED
        self._buffer = b""


def _framing(reason: str) -> SaslError:
    return SaslError("amqp:connection:framing-error", reason)


def _frame(body: bytes) -> bytes:
    return _FRAME.pack(_FRAME.size + len(body), 2, _SASL_FRAME_TYPE, 0) + body


def _offer(mechanisms: Sequence[Mechanism]) -> bytes:
    """Write the frame with the mechanisms: a list of one array of symbols."""
    names = b"".join(bytes((len(each.value),)) + each.value.encode() for each in mechanisms)
    array = bytes((0xE0, len(names) + 2, len(mechanisms), 0xA3)) + names
    return _frame(b"\x00\x53\x40\xc0" + bytes((len(array) + 1, 1)) + array)


def _outcome(code: int) -> bytes:
    return _frame(bytes((0x00, 0x53, 0x44, 0xC0, 3, 1, 0x50, code)))


def _init_fields(body: bytes) -> tuple[str, bytes, str]:
    """Read the mechanism, the first response and the host of an init frame."""
    reader = _Reader(body)
    if reader.descriptor() != _INIT:
        raise _framing("another frame than the choice of a mechanism")
    count = reader.list_of()
    if not 1 <= count <= 3:
        raise _framing(f"{count} fields of a choice of a mechanism")
    mechanism = reader.value(_SYMBOL)
    response = reader.value(_BINARY) if count > 1 else None
    host = reader.value(_STRING) if count > 2 else None
    reader.end()
    if mechanism is None:
        raise _framing("no mechanism")
    return (
        mechanism.decode("ascii", "replace"),
        response or b"",
        (host or b"").decode("utf-8", "replace"),
    )


class _Reader:
    """Reads the types of AMQP that an init frame has."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def descriptor(self) -> int:
        """Return the number that tells the type of a frame."""
        form = self._take(2)
        if form not in _DESCRIPTORS:
            raise _framing("a frame without a type")
        return int.from_bytes(self._take(1 if form == _DESCRIPTORS[0] else 8))

    def list_of(self) -> int:
        """Return how many values a list has, which is all that is left."""
        code = self._take(1)[0]
        if code == 0x45:
            return 0
        width = {0xC0: 1, 0xD0: 4}.get(code)
        if width is None:
            raise _framing("a frame without a list")
        size = int.from_bytes(self._take(width))
        if size != len(self._data) - self._at:
            raise _framing("a list of another size than its frame")
        return int.from_bytes(self._take(width))

    def value(self, kind: int) -> bytes | None:
        """Return the bytes of a value of variable width, or `None` for null."""
        code = self._take(1)[0]
        if code == _NULL:
            return None
        width = _SIZES.get(code >> 4)
        if width is None or code & 15 != kind:
            raise _framing("a field of another type")
        return self._take(int.from_bytes(self._take(width)))

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise _framing("bytes behind the last field")

    def _take(self, size: int) -> bytes:
        at = self._at
        self._at += size
        if self._at > len(self._data):
            raise _framing("a frame is cut short")
        return self._data[at : self._at]
