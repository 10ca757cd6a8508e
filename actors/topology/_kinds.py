"""The kinds of worker that a topology file can name, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from ...protocol import Address, Route
from ...protocol.topology import KindOptions, Option, OptionType
from .._worker import Worker
from ..services import (
    Announcer,
    DiscoveryOptions,
    DiscoveryService,
    PubSubOptions,
    PubSubService,
    RelayClient,
    RelayService,
    RelayServiceOptions,
    StaticRelayService,
    Subscriber,
)
from ..workers import Echo, Forwarder, Proxy, Spread, Spreader, Tap
from ._workers import Print, Record

__all__ = ["KINDS", "WorkerKind"]


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A kind of worker.

    Attributes:
        make: The function or class that makes a worker; it is called with the options by name.
        summary: A description of such a worker for readers: the end of "it ...".
        options: The options that a file may set.
    """

    make: Callable[..., Worker]
    summary: str
    options: KindOptions = field(default=KindOptions())


def _takes(passes_on: bool = False, /, **options: Option) -> KindOptions:
    return KindOptions(options, passes_on=passes_on)


Addresses: TypeAlias = tuple[Address, ...]

_RELAY: Final = RelayServiceOptions()
_PUB_SUB: Final = PubSubOptions()
_DISCOVERY: Final = DiscoveryOptions()
_SPREADS: Final = {each.name.lower().replace("_", "-"): each for each in Spread}


_MAY_HAVE: Final = {
    "expose_at": Option(OptionType.LISTENERS),
    "expire_after": Option(OptionType.SECONDS),
}
"""Options of all services that start workers at addresses."""


def _relay(
    service: type[RelayService],
    *,
    expose_at: Addresses = (),
    expire_after: float = _RELAY.expire_after,
    max_relays: int = _RELAY.max_relays,
) -> RelayService:
    options = RelayServiceOptions(expire_after=expire_after, max_relays=max_relays)
    return service(expose_at=expose_at, options=options)


def _pub_sub(
    *, expose_at: Addresses = (), expire_after: float = _PUB_SUB.expire_after
) -> PubSubService:
    options = PubSubOptions(expire_after=expire_after)
    return PubSubService(expose_at=expose_at, options=options)


def _discovery(*, expire_after: float = _DISCOVERY.expire_after) -> DiscoveryService:
    return DiscoveryService(options=DiscoveryOptions(expire_after=expire_after))


def _spreader(routes: tuple[Route, ...], spread: str = "round-robin") -> Spreader:
    return Spreader(routes, _SPREADS[spread])


KINDS: Final[Mapping[str, WorkerKind]] = MappingProxyType(
    {
        "echo": WorkerKind(Echo, "answers with the payload that came"),
        "forward": WorkerKind(Forwarder, "passes on along the onward route", _takes(True)),
        "proxy": WorkerKind(
            Proxy,
            "passes on along its own route, with the rest of the onward route behind it",
            _takes(
                route=Option(OptionType.ROUTE, required=True), transparent=Option(OptionType.FLAG)
            ),
        ),
        "tap": WorkerKind(
            Tap,
            "passes on along the onward route, and sends a copy to an observer",
            _takes(True, observer=Option(OptionType.ROUTE, required=True)),
        ),
        "spreader": WorkerKind(
            _spreader,
            "passes on along one of several routes",
            _takes(
                routes=Option(OptionType.ROUTES, required=True),
                spread=Option(OptionType.TEXT, choices=tuple(_SPREADS)),
            ),
        ),
        "relay": WorkerKind(
            partial(_relay, RelayService),
            "starts relays at random addresses for registered clients",
            _takes(**_MAY_HAVE, max_relays=Option(OptionType.COUNT)),
        ),
        "static_relay": WorkerKind(
            partial(_relay, StaticRelayService),
            "starts relays at requested addresses: forward_to_ and an alias",
            _takes(**_MAY_HAVE, max_relays=Option(OptionType.COUNT)),
        ),
        "relay_client": WorkerKind(
            RelayClient,
            "registers with a relay service, and again when the route to it is lost",
            _takes(route=Option(OptionType.ROUTE, required=True), alias=Option(OptionType.TEXT)),
        ),
        "pubsub": WorkerKind(_pub_sub, "starts topics for subscribers", _takes(**_MAY_HAVE)),
        "subscriber": WorkerKind(
            Subscriber,
            "subscribes to a topic, and passes on the published messages",
            _takes(
                route=Option(OptionType.ROUTE, required=True),
                name=Option(OptionType.TEXT, required=True),
                topic=Option(OptionType.TEXT, required=True),
                deliver=Option(OptionType.ROUTE, required=True),
                refresh=Option(OptionType.SECONDS),
            ),
        ),
        "discovery": WorkerKind(
            _discovery,
            "knows services by name, for as long as they are announced",
            _takes(expire_after=Option(OptionType.SECONDS)),
        ),
        "announcer": WorkerKind(
            Announcer,
            "announces a service, and passes on the messages for it",
            _takes(
                route=Option(OptionType.ROUTE, required=True),
                name=Option(OptionType.TEXT, required=True),
                target=Option(OptionType.ROUTE, required=True),
                refresh=Option(OptionType.SECONDS),
            ),
        ),
        "print": WorkerKind(Print, "prints payloads as text"),
        "record": WorkerKind(
            Record,
            "keeps the payloads that come, and answers with them at a second address",
            _takes(limit=Option(OptionType.COUNT)),
        ),
    }
)
"""The kinds by name; `{**KINDS, "mine": WorkerKind(...)}` adds one of your own."""
