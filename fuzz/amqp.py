"""Send random and mutated bytes to the listener for clients of AMQP.

The SASL layer returns credentials, or raises `SaslError` with a short text, and keeps no more than
its limits. The reader of messages returns a head, or raises `BadMessage`; what it has read is still
a message without its annotations. A connection, which is tried where Proton is installed, reads
anything: it goes on, or ends with a condition, and what it sends then has no copy of the input. The
process does not grow.

    python fuzz/amqp.py --count 1000000 --seed 1 --target messages
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Hashable
from random import Random
from typing import Any, Final

from _fuzzing import arguments_of, check_text_of, mutated, noise, run

from onward.actors.dispatch import (
    AcceptCircuit,
    CircuitContainer,
    CircuitLink,
    CircuitLinkEnd,
    ConsumerEnd,
    ConsumerRefused,
    OutcomeCallback,
    ProducerEnd,
)
from onward.protocol.dispatch import ACCEPTED, Refusal
from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.amqp import AmqpOptions
from onward.transports.amqp._engine import AmqpEngine, Opened
from onward.transports.amqp._links import Links
from onward.transports.amqp._messages import BadMessage, read_head, without_annotations
from onward.transports.amqp._proton import load_proton
from onward.transports.amqp._sasl import (
    AMQP_HEADER,
    MAX_BEHIND,
    MAX_SASL_FRAME,
    SASL_HEADER,
    Mechanism,
    SaslError,
    SaslServer,
    SaslState,
)

MARK: Final = b"SECRET-OF-THE-INPUT"


def described(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def several(code: int, *values: bytes) -> bytes:
    """Return a short list, 0xc0, or a short map, 0xc1."""
    body = b"".join(values)
    return bytes((code, len(body) + 1, len(values))) + body


def text(value: str, code: int = 0xA1) -> bytes:
    """Return a short string; 0xa0 is binary, and 0xa3 a symbol."""
    return bytes((code, len(value))) + value.encode()


def sasl(*fields: bytes) -> bytes:
    body = described(0x41, several(0xC0, *fields))
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


NULL: Final = b"\x40"
SASL_SEEDS: Final = [
    SASL_HEADER + sasl(text("PLAIN", 0xA3), text("\0ann\0secret", 0xA0)) + AMQP_HEADER,
    SASL_HEADER + sasl(text("ANONYMOUS", 0xA3)),
    SASL_HEADER + sasl(text("EXTERNAL", 0xA3), NULL, text("host")) + AMQP_HEADER + b"more",
    AMQP_HEADER,
]
ANNOTATIONS: Final = several(0xC1, text("x-opt-a", 0xA3), text("1"))
MESSAGE_SEEDS: Final = [
    described(0x70, several(0xC0, NULL, NULL, b"\x70\x00\x00\x03\xe8"))
    + described(0x71, ANNOTATIONS)
    + described(0x72, ANNOTATIONS)
    + described(0x73, several(0xC0, NULL, NULL, text("orders")))
    + described(0x77, text("12 apples")),
    described(0x75, text("abc", 0xA0)) + described(0x75, text("", 0xA0)),
    described(0x70, b"\x45") + described(0x76, b"\x45") + described(0x78, ANNOTATIONS),
    b"\x00" + text("amqp:application-properties:map", 0xA3) + ANNOTATIONS + described(0x77, NULL),
    b"\x00\x80" + (0x73).to_bytes(8) + several(0xC0, NULL, NULL, text("a")),
]
PIECES: Final = [
    bytes.fromhex(text)
    for text in (
        "00",
        "0053",
        "0080",
        "40",
        "45",
        "c0",
        "d0ffffffff",
        "d000000004ffffffff",
        "c1",
        "d1",
        "a0ff",
        "b07fffffff",
        "b1",
        "a3",
        "00000000",
        "ffffffff",
        "0000" * 8,
        "005370",
        "005373",
        "005378",
        "02010000",
    )
]


class Port:
    """A dispatcher that accepts whatever comes."""

    def open_producer(
        self,
        name: str | None,
        end: ProducerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> Port:
        end.credit(10)
        return self

    def open_consumer(
        self,
        name: str,
        end: ConsumerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> Port:
        return self

    def temporary_name(self) -> str:
        return "_temp/a/b"

    def is_circuit(self, name: str) -> bool:
        return name == "circuit"

    def open_circuit(self, name: str, end: CircuitLinkEnd, **_: Any) -> CircuitLink:
        raise ConsumerRefused(name, Refusal.ROLES)

    def serve_circuits(self, name: str, accept: AcceptCircuit, **_: Any) -> CircuitContainer:
        raise ConsumerRefused(name, Refusal.ROLES)

    def send(
        self, name: str | None, message: bytes, ttl: float | None, told: OutcomeCallback | None
    ) -> None:
        if told is not None:
            told(ACCEPTED)

    def drained(self, messages: int = 0) -> None:
        """Give no more."""

    def credit(self, messages: int) -> None:
        """Send nothing."""

    def drain(self) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Forget it."""


def check_sasl(random: Random, data: bytes) -> bool:
    server = SaslServer([Mechanism.PLAIN, Mechanism.ANONYMOUS, Mechanism.EXTERNAL])
    at, found = 0, None
    try:
        while at < len(data) and server.state is not SaslState.ACCEPTED:
            size = 1 + int(random.random() * len(data))
            found = server.receive(data[at : at + size]) or found
            at += size
            if found is not None and server.state is SaslState.DECISION:
                server.decide(accepted=random.random() < 0.5)
    except SaslError as error:
        check_text_of(error)
        if server.state is not SaslState.REFUSED:
            raise AssertionError("an error, and the layer goes on") from error
        return False
    if len(server.behind()) > MAX_BEHIND + MAX_SASL_FRAME:
        raise AssertionError("too much is kept")
    return found is not None


def check_message(_: Random, data: bytes) -> bool:
    try:
        head = read_head(data)
        short = without_annotations(data)
    except BadMessage as error:
        check_text_of(error)
        return False
    if read_head(short) != head or len(short) > len(data):
        raise AssertionError("a message that its annotations were a part of")
    return True


OPTIONS: Final = AmqpOptions(max_frame=1024, max_message=4096, max_gathered=8192, max_links=4)


class Connections:
    """Connections by Proton, each for one input."""

    def __init__(self) -> None:
        self.proton: Any = load_proton()
        self.seeds = [self._recorded(), AMQP_HEADER]

    def _recorded(self) -> bytes:
        """Return all that a client sends that has a sender and a receiver."""
        proton = self.proton
        connection, transport = proton.Connection(), proton.Transport(1)
        connection.container = "client"
        transport.bind(connection)
        connection.open()
        session = connection.session()
        session.open()
        sender, receiver = session.sender("s"), session.receiver("r")
        sender.target.address = receiver.source.address = MARK.decode()
        sender.open()
        receiver.open()
        receiver.flow(5)
        engine = AmqpEngine(self.proton, "server", OPTIONS)
        links = self._links(engine)
        sent = bytearray()
        for turn in range(4):
            if turn == 2:
                sender.delivery("a")
                sender.stream(MESSAGE_SEEDS[0])
                sender.advance()
            if turn == 3:
                connection.close()
            size = transport.pending()
            data = bytes(transport.peek(size)) if size > 0 else b""
            if data:
                transport.pop(len(data))
            sent += data
            answer = self._fed(engine, links, data)
            if answer:
                transport.push(answer)
        links.lost()
        engine.release()
        transport.unbind()
        return bytes(sent)

    def _links(self, engine: AmqpEngine) -> Links:
        return Links(engine, Port(), OPTIONS, ANONYMOUS, lambda: None, lambda _: None, _raise)

    def _fed(self, engine: AmqpEngine, links: Links, data: bytes) -> bytes:
        engine.receive(data)
        try:
            for event in engine.events():
                if isinstance(event, Opened):
                    engine.open()
                else:
                    links.handle(event)
        except (UnicodeDecodeError, self.proton.ProtonException):
            engine.close("amqp:decode-error")
        made = bytearray()
        while part := engine.data_to_send(4096):
            made += part
        return bytes(made)

    def check(self, random: Random, data: bytes) -> bool:
        engine = AmqpEngine(self.proton, "server", OPTIONS)
        links, made, at = self._links(engine), bytearray(), 0
        while at < len(data):
            size = 1 + int(random.random() * len(data))
            made += self._fed(engine, links, data[at : at + size])
            at += size
        closed = engine.closed
        links.lost()
        engine.release()
        if closed and not closed.isascii():
            raise AssertionError(f"a condition that is none: {closed!r}")
        if len(made) > 16 * len(data) + 4096:
            raise AssertionError(f"{len(made)} bytes for {len(data)}")
        close = made.rfind(b"\x00S\x18")
        if close >= 0 and MARK in made[close:]:
            raise AssertionError("the end has a copy of the input")
        return not closed


def tried(name: str, count: int, seed: int) -> bool:
    check: Callable[[Random, bytes], bool]
    if name == "connections":
        if importlib.util.find_spec("proton") is None:
            print("connections: not tried, as python-qpid-proton is not installed")
            return True
        connections = Connections()
        seeds, check = connections.seeds, connections.check
    elif name == "sasl":
        seeds, check = SASL_SEEDS, check_sasl
    else:
        seeds, check = MESSAGE_SEEDS, check_message

    def make(random: Random, number: int) -> bytes:
        return noise(random) if number % 20 == 0 else mutated(random, seeds, PIECES)

    return run(name, count, seed, make, check)


def _raise(error: Exception) -> None:
    """Fail with an error of a call by the dispatcher, of which there are none."""
    raise error


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__)
    names = ["connections", "messages", "sasl"]
    parser.add_argument("--target", choices=names, help="only this one")
    options = parser.parse_args(arguments)
    chosen = [options.target] if options.target else names
    held = [tried(name, options.count, options.seed) for name in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
