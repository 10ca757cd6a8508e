"""Errors of the runtime itself; those of routing are in `onward.protocol`.

```
OnwardError
├── LimitReached          a named limit of the node or a worker
├── BadHandler            a worker's method that the node cannot use
├── RuleInUse             the address type has a rule of another owner
├── UnknownScheme         no transport for this kind of URI
├── WouldDeadlock         a call that waits for its own thread or handler
└── DeliveryError
    ├── NotDelivered
    │   ├── NodeStopped
    │   │   └── NodeNotStarted    the node has not been started
    │   ├── Expired           its deadline passed before a worker took it up
    │   ├── Refused           an error reply says that it was not handed over
    │   ├── RoutingLoop       a message was rerouted or passed on too often
    │   ├── TooManyRequests   the node waits for too many answers already
    │   └── Unresolved        a rule did not resolve an address, or not in time
    └── InDoubt
        └── GivenUp           an error reply says that it was handed over, or may have been
```
"""

from __future__ import annotations

from typing import Final

from ..protocol import InDoubt, NodeStopped, NotDelivered, OnwardError

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
    "Unresolved",
    "WouldDeadlock",
]


YIELDS: Final = "it yields, so that calling it runs none of its code; use return or await"
"""The error text for a method that is a generator."""


class LimitReached(OnwardError):
    """A limit of the node or a worker is reached.

    Attributes:
        what: The name of the limit in `NodeLimits`.
        limit: The limit.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit

    def __str__(self) -> str:
        what = f"for {self.what}" if self.limit == 1 else self.what  # limits are named by plurals
        return f"the limit of {self.limit} {what} is reached"


class BadHandler(OnwardError, TypeError):
    """A worker's method that the node cannot use.

    It yields, or returns a value that the node discards; or, in a typed worker, it declares a
    type that cannot be decoded or checked.

    Attributes:
        handler: The method, as `Class.method`.
        detail: The reason.
    """

    def __init__(self, handler: str, detail: str) -> None:
        super().__init__(handler, detail)
        self.handler = handler
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.handler}: {self.detail}"


class RuleInUse(OnwardError, ValueError):
    """An address type has a rule of another owner already.

    Attributes:
        address_type: The type.
        owner: The owner of the rule, as text.
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
        uri: The URI.
        known: The schemes with a transport.
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
    """A call that would prevent the event that it waits for.

    Either a blocking call on an event loop's thread, which would stop every worker of the loop:
    await instead, or make the call from a `ThreadWorker`. Or a handler that awaits the end of its
    own worker.

    Attributes:
        call: The call.
        why: The reason why it would never return, and the alternative.
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
    """The node has not been started, so the message was not handed over."""

    reason = "node not started"


class Expired(NotDelivered):
    """The deadline passed before a worker took the message up, so it was not handled."""

    reason = "expired"


class Refused(NotDelivered):
    """An error reply reports that the message was certainly not handed over.

    Attributes:
        detail: The reason that the error reply gives.
    """

    reason = "refused"


class GivenUp(InDoubt):
    """An error reply reports that the message was handed over, or may have been.

    Attributes:
        detail: The reason that the error reply gives.
    """

    reason = "given up"


class RoutingLoop(NotDelivered):
    """Rules rewrote a message, or workers passed it on, too often.

    Workers are counted if they pass it on without adding to its return route.
    """

    reason = "rerouted too often"


class TooManyRequests(NotDelivered):
    """The node waits for as many answers as it may; the request was not sent."""

    reason = "too many requests in flight"


class Unresolved(NotDelivered):
    """A rule has not resolved an address, so the message was not handed over.

    It has waited too long, or there was no room for it to wait, or the rule refused it.
    """

    reason = "unresolved"
