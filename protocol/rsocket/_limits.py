"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass

from ._constants import MAX_FRAME
from ._serialize import MIN_MTU

__all__ = ["ConnectionLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How much one peer may cost, and what happens when it asks for more.

    Attributes:
        max_frame: Most bytes of a received frame, without its length prefix. Over it:
            ERROR[CONNECTION_ERROR] and close, before the frame is gathered. Default: what
            the specification allows, 16 MiB - 1.
        max_setup: The same for the first frame, from a peer nothing is known of yet. Over
            it: ERROR[INVALID_SETUP] and close. Default 256 KiB.
        max_streams: Most live streams, both sides' together. Over it a request of the peer
            gets ERROR[REJECTED] (a fire-and-forget is dropped and counted), and our own
            `open` raises `TooManyStreams`. Default 16384.
        max_keepalive_data: Most bytes of data in a KEEPALIVE, which we have to send back.
            Over it: ERROR[CONNECTION_ERROR] and close. Default 64 KiB.
        setup_timeout: Seconds a client has for its SETUP. Then ERROR[INVALID_SETUP] and
            close. Default 10.
        max_keepalive: Longest time between KEEPALIVE frames a client may announce, in
            seconds. Over it: ERROR[UNSUPPORTED_SETUP] and close. Default 600.
        max_lifetime: Longest silence of a client, in seconds, whatever lifetime it
            announces; but never less than two of its keepalive intervals. Then
            ERROR[CONNECTION_ERROR] and close. Default 1200.
        lease: Whether a SETUP with the lease flag is accepted. If so, LEASE frames of the
            peer are handed out, and sending and honouring leases is up to the user of the
            connection. Otherwise: ERROR[UNSUPPORTED_SETUP] and close. Default no.
        mtu: Most bytes of a frame we make ourselves, without its length prefix; longer
            payloads go out in fragments. At least 64. `None`, the default: one frame, and
            `PayloadTooBig` over 16 MiB - 1. Relayed frames keep their size.

    Raises:
        ValueError: A size of frames is not of 64 bytes to 16 MiB - 1, there may be no stream, a
            time is not more than 0, or `max_keepalive_data` is less.
    """

    max_frame: int = MAX_FRAME
    max_setup: int = 256 * 1024
    max_streams: int = 16_384
    max_keepalive_data: int = 64 * 1024
    setup_timeout: float = 10.0
    max_keepalive: float = 600.0
    max_lifetime: float = 1200.0
    lease: bool = False
    mtu: int | None = None

    def __post_init__(self) -> None:
        if self.mtu is not None and not MIN_MTU <= self.mtu <= MAX_FRAME:
            raise ValueError(f"mtu must be {MIN_MTU} to {MAX_FRAME} bytes, not {self.mtu}")
        for name in ("max_frame", "max_setup"):
            if not MIN_MTU <= getattr(self, name) <= MAX_FRAME:
                raise ValueError(
                    f"{name} must be {MIN_MTU} to {MAX_FRAME}, not {getattr(self, name)}"
                )
        for name in ("setup_timeout", "max_keepalive", "max_lifetime"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)}")
        if self.max_streams < 1:
            raise ValueError(f"max_streams must be at least 1, not {self.max_streams}")
        if self.max_keepalive_data < 0:
            raise ValueError(
                f"max_keepalive_data must be at least 0, not {self.max_keepalive_data}"
            )
