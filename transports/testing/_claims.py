"""What a transport claims to do, and so which cases of the suite it has to pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = ["Claims", "Raw"]

Raw: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Writes bytes to where the listener of a URI takes them, as a stranger could, and goes away.

If there are handshakes it does that instead of each, and after it."""


def _no_options() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Claims:
    """What a transport claims. What it does not claim is not asked of it.

    Attributes:
        ordered: The messages of a link arrive in the order they were sent.
        reliable: Nothing is lost while a link is up, however much is sent at a time.
        connected: Both ends know whether the other is there: connecting to nobody fails, and the
            end of one end is the end of the other.
        backpressure: A receiver that takes nothing stops the sender, and nothing is lost by it.
        reconnects: A link made by `connect` is connected again, at the same address.
        ephemeral: The URI stands for any free place, as port 0 does; the listener's is the real
            one.
        many: A listener takes several links at a time.
        threads: The nodes may be on event loops of different threads.
        traces: The tracing text of a message's context crosses.
        virtual: It runs on a virtual clock, and so is tested on one.
        address_type: The type of address it resolves: what is behind `://` in a URI is what is
            behind `#` in an address. `None`: it resolves none.
        max_payload: Size of a payload that certainly gets across, in bytes.
        too_large: Size of a payload that is refused, in bytes; `None`: none is.
        listen_options: Options for `listen`.
        connect_options: Options for `connect`.
        raw: How hostile bytes get to a listener; `None`: there is no such way, or none known.
        patience: How long anything may take that has to happen, in seconds.
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
