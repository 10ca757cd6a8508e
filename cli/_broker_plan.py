"""A broker as its options ask for it: each part made and checked, with all faults at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from ..actors.broker import (
    BrokerOptions,
    ChoiceOptions,
    DrainOptions,
    MulticastOptions,
    WaitingOptions,
)
from ..actors.security import Authentication, Authorization
from ..protocol import Address, OnwardError
from ..protocol.rsocket import ResumeLimits
from ..transports import TlsOptions
from ..transports.rsocket import (
    FlowOptions,
    LeaseOptions,
    LinkOptions,
    ResumeOptions,
    UnixOptions,
    WebSocketOptions,
)
from ._admin import Admin, admin_of
from ._authentication import Methods
from ._callout import check_rules
from ._cluster import Clustering, clustering_of
from ._config import listener_arguments
from ._config_file import ListenerSettings
from ._event_log import check_event_log
from ._process import share
from ._reach import tls_of
from ._rules import authorization_of
from ._status import CommandError, Status

__all__ = [
    "DEFAULT_URI",
    "Faults",
    "Listening",
    "Outline",
    "Plan",
    "limits_of",
    "listening_of",
    "options_of",
    "plan_of",
]

T = TypeVar("T")

DEFAULT_URI: Final = "rsocket+tcp://127.0.0.1:8001"

WEBSOCKET: Final = ("rsocket+ws://", "rsocket+wss://")
UNIX: Final = ("rsocket+unix://",)
SECURE: Final = ("rsocket+tls://", "rsocket+wss://")

_LINKS: Final = LinkOptions()
_WEBSOCKET: Final = WebSocketOptions()
_UNIX: Final = UnixOptions()


@dataclass(frozen=True, slots=True)
class Listening:
    """Options of the broker's listeners.

    Attributes:
        links: The limits of each listener and its connections.
        websocket: The clients that may open a WebSocket.
        unix: The users that may connect to a Unix socket.
        tls: The certificates of listeners with TLS.
        expose: The addresses that requests may name in place of tags.
        authentication: The authentication of clients; `None` admits all.
        authorization: The authorization of clients; `None` lets them do anything.
        shared: Whether other processes of this broker listen there, too.
        siblings: Whether it is for them.
    """

    links: LinkOptions = _LINKS
    websocket: WebSocketOptions = _WEBSOCKET
    unix: UnixOptions = _UNIX
    tls: TlsOptions | None = None
    expose: tuple[Address, ...] = ()
    authentication: Authentication | None = None
    authorization: Authorization | None = None
    shared: bool = False
    siblings: bool = False

    def options(self, uri: str) -> dict[str, Any]:
        """Return the options of the listener at a URI."""
        own: dict[str, Any] = {}
        if uri.startswith(WEBSOCKET):
            own["websocket"] = self.websocket
        elif uri.startswith(UNIX):
            own["unix"] = self.unix
        if uri.startswith(SECURE):
            own["tls"] = self.tls
        own["authentication"] = self.authentication
        own["shared"], own["siblings"] = self.shared, self.siblings
        return {"options": self.links, "expose": self.expose, **own}


def options_of(arguments: argparse.Namespace) -> BrokerOptions:
    """Return the limits of the broker.

    Raises:
        ValueError: A value is out of its range.
    """
    return BrokerOptions(
        expected_seconds=arguments.expect_for,
        management=arguments.management,
        express_path=arguments.express_path,
        waiting=WaitingOptions(
            no_route_timeout=arguments.no_route_timeout, max_wait=arguments.max_wait
        ),
        choice=ChoiceOptions(method=arguments.method, shard_method=arguments.shard_method),
        multicast=MulticastOptions(on_leave=arguments.multicast_on_leave),
        drain=DrainOptions(arguments.drain_grace, arguments.drain_spread, arguments.drain_timeout),
    )


def _check_use(arguments: argparse.Namespace, uris: Sequence[str]) -> None:
    """Check that each option has a listener that it is for.

    Raises:
        CommandError: An option is for a kind of listener that is not used, or needs another one.
    """
    for name, given, schemes in (
        ("--origin goes", arguments.origin, WEBSOCKET),
        ("--mode goes", arguments.mode is not None, UNIX),
        ("certificates go", tls_of(arguments, listens=True) is not None, (*SECURE, "https://")),
    ):
        if given and not any(uri.startswith(schemes) for uri in uris):
            raise CommandError(f"{name} with --listen {schemes[0]}...", Status.USAGE)
    if arguments.proxy_protocol and not arguments.proxy:
        raise CommandError("--proxy-protocol needs --proxy", Status.USAGE)


def listening_of(arguments: argparse.Namespace) -> Listening:
    """Return the options of the listeners, without authentication and authorization.

    Raises:
        CommandError: Options do not go together.
        ValueError: A value is out of its range.
    """
    processes = arguments.processes
    lease = LeaseOptions(arguments.lease_requests, arguments.lease_time)
    session = ResumeLimits(time=arguments.resume_time, max_kept=arguments.resume_bytes)
    resume = ResumeOptions(
        session,
        share(arguments.resume_bytes_total, processes),
        share(arguments.resume_sessions, processes),
    )
    links = LinkOptions(
        max_connections=share(arguments.max_connections, processes),
        max_connections_per_source=arguments.max_connections_per_source,
        proxies=tuple(arguments.proxy),
        proxy_protocol=arguments.proxy_protocol,
        flow=FlowOptions(credit_window=arguments.credit_window),
        lease=lease if arguments.lease else None,
        resume=resume if arguments.resume else None,
    )
    unix = _UNIX if arguments.mode is None else UnixOptions(arguments.mode)
    websocket = WebSocketOptions(origins=tuple(arguments.origin))
    tls = tls_of(arguments, listens=True)
    return Listening(links, websocket, unix, tls, tuple(arguments.expose))


@dataclass(frozen=True, slots=True)
class Plan:
    """A broker as its options ask for it.

    Attributes:
        options: Its limits.
        listening: The options that all listeners share.
        listeners: The URI of each listener, and its options.
        admin: The admin interface; `None` for none.
        methods: The methods of authentication.
        clustering: Its part in a cluster; `None` for none.
    """

    options: BrokerOptions
    listening: Listening
    listeners: tuple[tuple[str, Listening], ...]
    admin: Admin | None
    methods: Methods
    clustering: Clustering | None


class Faults:
    """The faults of a configuration, of which each part is tried."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def made(self, make: Callable[[], T], place: str = "") -> T | None:
        """Return what a function makes; `None` if it fails, and the fault is kept.

        Args:
            make: The function.
            place: The place in a file that the fault is of; empty for none.
        """
        try:
            return make()
        except (CommandError, OnwardError, OSError, ValueError) as error:
            text = str(error)
            if isinstance(error, OSError) and error.strerror and error.filename:
                text = f"{error.strerror}: {error.filename}"
            if place:
                text = f"{place}: {text}"
            if text not in self._found:
                self._found.append(text)
            return None

    def check(self) -> None:
        """Go on if there is no fault.

        Raises:
            CommandError: There are faults; it has a line for each.
        """
        if self._found:
            raise CommandError("\n".join(self._found), Status.USAGE)


def plan_of(
    arguments: argparse.Namespace, newest: Callable[[], argparse.Namespace] | None = None
) -> Plan:
    """Return the broker that the options ask for. Reads the files that they name.

    Args:
        arguments: The options.
        newest: As for `Methods`.

    Raises:
        CommandError: They are not valid; the error names all faults.
    """
    faults = Faults()
    limits = _limits(arguments, faults)
    methods = faults.made(lambda: Methods(arguments, newest))
    authorization = faults.made(lambda: _authorization(arguments))
    by_listener: list[Authentication | None] = []
    shared = None
    if methods is not None:
        shared = faults.made(lambda: methods.of(arguments))
        by_listener = [
            faults.made(partial(methods.of, own), _place(table))
            for _, own, table in _listeners(arguments)
        ]
    tls = None if limits is None else limits.shared.tls
    admin = faults.made(lambda: admin_of(arguments, tls, shared, authorization))
    faults.check()
    if limits is None or methods is None:
        raise AssertionError("faults raise")
    listening = replace(limits.shared, authentication=shared, authorization=authorization)
    listeners = tuple(
        (uri, replace(made, authentication=own, authorization=authorization))
        for (uri, made), own in zip(limits.listeners, by_listener, strict=True)
    )
    return Plan(limits.options, listening, listeners, admin, methods, limits.clustering)


def _authorization(arguments: argparse.Namespace) -> Authorization | None:
    made = authorization_of(arguments)
    check_rules(arguments, made)
    return made


@dataclass(frozen=True, slots=True)
class Outline:
    """The limits of a broker, without authentication and authorization.

    Attributes:
        options: The limits of the broker.
        shared: The options that all listeners share.
        listeners: The URI of each listener, and its options.
        clustering: The part of the broker in a cluster; `None` for none.
    """

    options: BrokerOptions
    shared: Listening
    listeners: tuple[tuple[str, Listening], ...]
    clustering: Clustering | None


def limits_of(arguments: argparse.Namespace) -> Outline:
    """Return the limits of the broker that the options ask for.

    Raises:
        CommandError: They are not valid; the error names all faults.
    """
    faults = Faults()
    limits = _limits(arguments, faults)
    faults.check()
    if limits is None:
        raise AssertionError("faults raise")
    return limits


def _limits(arguments: argparse.Namespace, faults: Faults) -> Outline | None:
    """Return the limits; `None` if there are faults, which are kept."""
    faults.made(lambda: check_event_log(arguments))
    options = faults.made(lambda: options_of(arguments))
    each = _listeners(arguments)
    uris = [uri for uri, _, _ in each]
    faults.made(lambda: _check_use(arguments, [*uris, arguments.admin or ""]))
    shared = faults.made(lambda: listening_of(arguments))
    clustering = faults.made(lambda: clustering_of(arguments))
    listeners: list[tuple[str, Listening]] = []
    for uri, own, table in each:
        made = faults.made(partial(listening_of, own), _place(table))
        if table is not None:
            faults.made(partial(_check_own, table), table.origin)
        if made is not None:
            listeners.append((uri, made))
    if options is None or shared is None or len(listeners) < len(each):
        return None
    return Outline(options, shared, tuple(listeners), clustering)


def _listeners(
    arguments: argparse.Namespace,
) -> list[tuple[str, argparse.Namespace, ListenerSettings | None]]:
    return listener_arguments(arguments) or [(DEFAULT_URI, arguments, None)]


def _place(table: ListenerSettings | None) -> str:
    return "" if table is None else table.origin


def _check_own(table: ListenerSettings) -> None:
    """Check that what a listener has of its own is for its kind.

    Raises:
        CommandError: It is for another kind.
    """
    for name, schemes in (("origin", WEBSOCKET), ("mode", UNIX), ("certificate", SECURE)):
        if name in table.own and not table.uri.startswith(schemes):
            raise CommandError(f'{name} goes with uri = "{schemes[0]}..."', Status.USAGE)
    if not table.uri.startswith("rsocket+"):
        raise CommandError(f"{table.uri!r} does not start with rsocket+", Status.USAGE)
