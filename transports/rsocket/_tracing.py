"""Requests that are traced hop by hop, and the reports of their hops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...actors import Worker
from ...protocol import (
    MAX_TRACING,
    Address,
    MalformedMessage,
    Message,
    decode_hop_report,
    read_tracing,
    trace_mark_of,
    with_trace_mark,
)
from ...protocol.broker import MIME_HOP_REPORT, MIME_TRACING
from ...protocol.rsocket import (
    LocalProtocolError,
    MalformedComposite,
    composite_entry,
    entry_finder,
)

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["RequestTracing", "tracing_in"]

_find: Final = entry_finder(MIME_TRACING.encode())


def tracing_in(metadata: bytes) -> str | None:
    """Return the tracing text in composite metadata.

    Returns:
        The text; `None` if there is none, or one that cannot be read: tracing causes no errors.
    """
    try:
        found = _find(metadata, 0, len(metadata))
    except MalformedComposite:
        return None
    if found is None or found[2] - found[1] > MAX_TRACING:
        return None
    try:
        text = metadata[found[1] : found[2]].decode()
    except UnicodeDecodeError:
        return None
    return text if read_tracing(text) else None


class RequestTracing:
    """The traced requests of one connection, on a node with a tracer.

    A traced request is a message all the way, and its first hop is the connection itself. The
    return route ends at a worker of this connection, which gets the reports of the hops and sends
    each to the peer in a METADATA_PUSH.

    Args:
        link: The requester's connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reports: Address | None = None

    def send(self, message: Message, text: str) -> None:
        """Send the message of a request as the first of its traced hops.

        Args:
            message: The message; its onward route begins with the tag index.
            text: The tracing text of the request.

        Raises:
            DeliveryError: It cannot be routed.
        """
        worker, instruments = self._link.worker, self._link.node.instruments
        onward, own, payload, source, context = message
        fields = read_tracing(text) or {}
        mark = trace_mark_of(fields)
        back: tuple[Address, ...] = ()
        if mark is not None:
            # The peer's address for reports means nothing here.
            reports = self._worker_of_reports()
            back = (reports,)
            text = with_trace_mark(fields, replace(mark, tracer=reports)) or text
        if context is None or instruments is None:
            raise AssertionError("a traced request has a context and is observed")
        traced = context._replace(trace=text)
        first = Message((*own, *onward), back, payload, source, traced)
        instruments.handle_traced(worker, first, self._forward)

    def _forward(self, message: Message) -> None:
        """Pass a request on from the connection, as a worker that forwards a message."""
        onward, back, payload, source, context = message
        self._link.node.parts.router.dispatch(
            Message(onward[1:], (onward[0], *back), payload, source, context)
        )

    def _worker_of_reports(self) -> Address:
        if self._reports is None:
            reports = _HopReports(self._link)
            self._reports = self._link.worker.spawn(lambda: reports)
        return self._reports


class _HopReports(Worker):
    """The worker that sends the reports of hops to a connection's peer, until it has ended."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link: Link | None = link

    def handle_message(self, message: Message) -> None:
        """Send a report to the peer; one that it has no room for is counted and dropped."""
        link = self._link
        try:
            decode_hop_report(message.payload)
        except MalformedMessage:
            self.node.dead_letter(message, "unhandled")
            return
        if link is None or link.write_paused:
            self.node.dead_letter(message, "the peer does not read")
            return
        try:
            link.core.send_metadata_push(composite_entry(MIME_HOP_REPORT, message.payload))
        except LocalProtocolError:
            self.node.dead_letter(message, "the connection has ended")
            return
        link.flush_soon()

    def on_stop(self) -> None:
        """Release the connection."""
        self._link = None
