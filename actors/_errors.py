"""Errors of the runtime itself; those of routing are in `onward.protocol`.

```
OnwardError
├── LimitReached          a named limit of the node or a worker
├── BadHandler            a worker's method that cannot be called as the node calls it
├── RuleInUse             another owner has the rule for a type of address
├── UnknownScheme         no transport for this kind of URI
├── WouldDeadlock         a blocking call on the thread that has to answer it
└── DeliveryError
    ├── NotDelivered
    │   ├── NodeStopped
    │   │   └── NodeNotStarted    the node has not been started
    │   ├── Expired           its deadline passed before a worker took it up
    │   ├── Refused           an error reply says that it was not handed over
    │   ├── RoutingLoop       the rules sent a message round in circles
    │   └── TooManyRequests   the node waits for too many answers already
    └── InDoubt
        └── GivenUp           an error reply says that it was handed over, or may have been
```
"""

from __future__ import annotations

from typing import Final

from ..protocol import InDoubt, NodeStopped, NotDelivered, OnwardError
from .routing._dead_letters import EXPIRED

__all__ = [
    "BadHandler",
    "Expired",
    "GivenUp",
    "LimitReached",
    "NodeNotStarted",
    "Refused",
    "RoutingLoop",
    "RuleInUse",
    "TooManyRequests",
    "UnknownScheme",
    "WouldDeadlock",
]


YIELDS: Final = "it yields, so that calling it runs none of its code; use return or await"
"""What is wrong with a method that is a generator."""


class LimitReached(OnwardError):
    """Something that may not grow without a bound has reached its bound.

    Attributes:
        what: What is limited, as named in `NodeLimits`.
        limit: How many there may be.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit

    def __str__(self) -> str:
        what = f"for {self.what}" if self.limit == 1 else self.what  # their names are plurals
        return f"the limit of {self.limit} {what} is reached"


class BadHandler(OnwardError, TypeError):
    """A worker's method that cannot do what the node calls it for.

    One that yields, or returns what the node has no use for; or, of a typed worker, one that
    declares what cannot be decoded or checked.

    Attributes:
        handler: Which, as `Class.method`.
        detail: What is wrong with it.
    """

    def __init__(self, handler: str, detail: str) -> None:
        super().__init__(handler, detail)
        self.handler = handler
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.handler}: {self.detail}"


class RuleInUse(OnwardError, ValueError):
    """A type of address has a rule already, and it belongs to something else.

    Attributes:
        address_type: The type.
        owner: What the rule belongs to, as text.
    """

    def __init__(self, address_type: int, owner: str) -> None:
        super().__init__(address_type, owner)
        self.address_type = address_type
        self.owner = owner

    def __str__(self) -> str:
        return f"addresses of type {self.address_type} are resolved by {self.owner} already"


class UnknownScheme(OnwardError, ValueError):
    """No transport is registered for the scheme of a URI.

    Attributes:
        uri: What was asked for.
        known: The schemes there are transports for.
    """

    def __init__(self, uri: str, known: tuple[str, ...]) -> None:
        super().__init__(uri, known)
        self.uri = uri
        self.known = known

    def __str__(self) -> str:
        if "://" not in self.uri:
            return f"{self.uri!r} is no URI of a transport: it does not say SCHEME://"
        return f"no transport for {self.uri!r}; there are: {', '.join(self.known) or 'none'}"


class WouldDeadlock(OnwardError, RuntimeError):
    """A call that waits for what it keeps from happening.

    A blocking call on an event loop's thread, which would stop every worker of the loop: await
    instead, or make the call from a `ThreadWorker`. Or a handler that awaits the end of its own
    worker.

    Attributes:
        call: What was called.
        why: Why it would never return, and what to do instead.
    """

    def __init__(
        self, call: str, why: str = "would block the event loop it waits for; await it instead"
    ) -> None:
        super().__init__(call, why)
        self.call = call
        self.why = why

    def __str__(self) -> str:
        return f"{self.call} {self.why}"


class NodeNotStarted(NodeStopped):
    """The node has not been started, so nothing was handed over."""

    reason = "node not started"


class Expired(NotDelivered):
    """The deadline passed before a worker took the message up, so it was not handled."""

    reason = EXPIRED


class Refused(NotDelivered):
    """Whoever had the message on its way says that it was certainly not handed over.

    Attributes:
        detail: The reason that the error reply gives.
    """

    reason = "refused"


class GivenUp(InDoubt):
    """Whoever had the message on its way gave it up after it was handed over, or may have been.

    Attributes:
        detail: The reason that the error reply gives.
    """

    reason = "given up"


class RoutingLoop(NotDelivered):
    """A message goes round: rules rewrote it, or workers passed it on, too often.

    What counts for workers is passing on that leaves no trace on the return route.
    """

    reason = "rerouted too often"


class TooManyRequests(NotDelivered):
    """The node waits for as many answers as it may; nothing was sent."""

    reason = "too many requests in flight"
