"""The claims of a transport, which select the cases that it has to pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = ["Claims", "Raw"]

Raw: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Writes bytes to the listener of a URI, as a hostile client could, and disconnects.

If there are handshakes it does so instead of each of them, and after it."""


def _no_options() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a transport. Cases without their claims are skipped.

    Attributes:
        ordered: The messages of a link arrive in the order they were sent.
        reliable: No message is lost while a link is up, however many are sent at a time.
        connected: Both ends know whether the other is there: connecting without a listener fails,
            and when one end stops, the other stops.
        backpressure: A receiver that accepts nothing stops the sender, without a loss.
        reconnects: A link made by `connect` reconnects, under the same address.
        ephemeral: The URI stands for any free place, as port 0 does; the listener's URI is the
            actual one.
        many: A listener accepts several links at a time.
        threads: The nodes may be on event loops of different threads.
        traces: The tracing text of a message's context crosses.
        virtual: It runs on a virtual clock, and is tested on one.
        address_type: The type of address it resolves, with the part behind `://` of a URI as
            value. `None`: it resolves none.
        max_payload: Size of a payload that crosses in every case, in bytes.
        too_large: Size of a payload that is refused, in bytes; `None`: none is.
        listen_options: Options for `listen`.
        connect_options: Options for `connect`.
        raw: Sends hostile bytes to a listener; `None`: not possible.
        patience: Time limit for every expected event, in seconds.
    """

    ordered: bool = True
    reliable: bool = True
    connected: bool = True
    backpressure: bool = True
    reconnects: bool = False
    ephemeral: bool = False
    many: bool = True
    threads: bool = True
    traces: bool = True
    virtual: bool = False
    address_type: int | None = None
    max_payload: int = 1024 * 1024
    too_large: int | None = None
    listen_options: Mapping[str, Any] = field(default_factory=_no_options)
    connect_options: Mapping[str, Any] = field(default_factory=_no_options)
    raw: Raw | None = None
    patience: float = 10.0


DEFAULT: Final = Claims()
