"""The raw load for nats-server: PUB with an inbox for the reply, and one subscription each side.

`_rawload.py` sends it, at the same cost. All lines of a kind have one length: the number of a
request has eight hexadecimal digits and is the last part of its inbox.
"""

from __future__ import annotations

import socket

from _rawload import SERVICE, TIMEOUT, Sent, Shape

__all__ = ["nats_shape"]

INBOX = b"_INBOX.load."
DIGITS = 8
HELLO = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw"}\r\n'
SUBSCRIPTION = b"1"


def nats_shape(data: bytes) -> Shape:
    """Return the shape of a request with a reply, with this data in both directions.

    For one requester only: several would share the inbox.
    """
    inbox = INBOX + b"0" * DIGITS
    subject = SERVICE.encode()
    size = str(len(data)).encode()
    return Shape(
        request=_sent(
            b" ".join((b"PUB", subject, inbox, size)),
            b" ".join((b"MSG", subject, SUBSCRIPTION, inbox, size)),
            data,
        ),
        answer=_sent(
            b" ".join((b"PUB", inbox, size)),
            b" ".join((b"MSG", inbox, SUBSCRIPTION, size)),
            data,
        ),
        numbers=(1, 1),
        connect=connect,
        text=True,
    )


def connect(port: int, name: str) -> socket.socket:
    """Open a connection that is subscribed: as the service, or as a requester to the inbox."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    subject = SERVICE.encode() if name == SERVICE else INBOX + b"*"
    connection.sendall(HELLO + b"SUB " + subject + b" " + SUBSCRIPTION + b"\r\nPING\r\n")
    # After the answer to the first PING the server measures the round trip with a PING of its own.
    received = b""
    while not (b"PONG\r\n" in received and received.endswith(b"PING\r\n")):
        chunk = connection.recv(4096)
        if not chunk or b"-ERR" in chunk:
            connection.close()
            raise RuntimeError(f"nats-server does not take the connection: {chunk!r}")
        received += chunk
    connection.sendall(b"PONG\r\n")
    return connection


def _sent(written: bytes, arrived: bytes, data: bytes) -> Sent:
    places = (_number(written), _number(arrived))
    tail = b"\r\n" + data + b"\r\n"
    same = [at for at in range(len(arrived)) if at not in places[1]]
    return Sent(written + tail, places[0], arrived + tail, places[1], tuple(same))


def _number(line: bytes) -> range:
    start = line.index(INBOX) + len(INBOX)
    return range(start, start + DIGITS)
