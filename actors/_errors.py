"""Errors of the runtime itself; those of routing are in `onward.protocol`.

```
OnwardError
├── LimitReached          a named limit of the node or a worker
├── RuleInUse             another owner has the rule for a type of address
├── UnknownScheme         no transport for this kind of URI
├── WouldDeadlock         a blocking call on the thread that has to answer it
└── DeliveryError
    ├── NotDelivered
    │   ├── Expired           its deadline passed before a worker took it up
    │   ├── Refused           an error reply says that it was not handed over
    │   ├── RoutingLoop       the rules sent a message round in circles
    │   └── TooManyRequests   the node waits for too many answers already
    └── InDoubt
        └── GivenUp           an error reply says that it was handed over, or may have been
```
"""

from __future__ import annotations

from ..protocol import InDoubt, NotDelivered, OnwardError
from ._dead_letters import EXPIRED

__all__ = [
    "Expired",
    "GivenUp",
    "LimitReached",
    "Refused",
    "RoutingLoop",
    "RuleInUse",
    "TooManyRequests",
    "UnknownScheme",
    "WouldDeadlock",
]


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
        return f"the limit of {self.limit} {self.what} is reached"


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
    """A blocking call on an event loop's thread, which would stop every worker of the loop.

    Await instead, or make the call from a `ThreadWorker`.

    Attributes:
        call: What was called.
    """

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        return f"{self.call} would block the event loop it waits for; await it instead"


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
