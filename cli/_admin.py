"""The admin interface of a broker or a node, and the options for it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..actors import Listener, Node
from ..actors.broker import Broker
from ..actors.cluster import Cluster
from ..actors.security import Authentication, Authorization
from ..protocol.security import Action, Principal
from ..transports import TlsOptions
from ._listen import reason_of
from ._process import Process
from ._service import Service, reload_on_request
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..transports.admin import AdminOptions, AdminPaths

__all__ = [
    "Admin",
    "Started",
    "add_admin",
    "admin_of",
    "administered",
    "options_of",
    "print_admin",
    "serve_admin",
]

SECURE = "https://"

Started: TypeAlias = Callable[[Sequence[Listener]], None]
"""Ends the start of a server, which has opened these listeners."""


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin interface of a broker or a node.

    Attributes:
        uri: The URI to listen at.
        hosts: The names by which it is reached, besides its own.
        open_metrics: Whether the metrics need no authentication.
        tls: The certificates for `https`.
        authentication: The authentication of peers; `None` admits each that can connect.
        authorization: The rules for what they may do.
        newest: Returns the certificates of the newest configuration; by default they stay the same.
    """

    uri: str
    hosts: tuple[str, ...] = ()
    open_metrics: bool = False
    tls: TlsOptions | None = None
    authentication: Authentication | None = None
    authorization: Authorization | None = None
    newest: Callable[[], TlsOptions | None] | None = None


def add_admin(parser: argparse.ArgumentParser, *, broker: bool) -> None:
    """Add the options of the admin interface of a broker, or of a node without one."""
    where = (
        "http://127.0.0.1:8601, https://host:port, or unix:///path; beyond the loopback interface "
        "it needs https, and one of --principals, --jwt-keys, --callout and --authenticator"
        if broker
        else "http://127.0.0.1:8601, or unix:///path; only for the loopback interface"
    )
    parser.add_argument(
        "--admin",
        metavar="URI",
        help="serve health checks, metrics and the state of the program by HTTP: "
        f"{where} (default: not served)",
    )
    parser.add_argument(
        "--admin-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which the admin interface is reached, without a port: requests for other "
        "names than these, its own and those of the loopback interface are refused; may be "
        "repeated",
    )
    if broker:
        parser.add_argument(
            "--admin-open-metrics",
            action="store_true",
            help="with authentication or --rules: give the metrics to all that can connect to the "
            "admin interface",
        )


def admin_of(
    arguments: argparse.Namespace,
    tls: TlsOptions | None = None,
    authentication: Authentication | None = None,
    authorization: Authorization | None = None,
) -> Admin | None:
    """Return the admin interface; `None` if none is asked for.

    Args:
        arguments: The arguments of the command.
        tls: The certificates of the broker.
        authentication: The authentication of its clients, which is that of operators too.
        authorization: The rules for them.

    Raises:
        CommandError: The options do not go together.
    """
    uri: str | None = arguments.admin
    is_open: bool = getattr(arguments, "admin_open_metrics", False)  # of brokers only
    if uri is None:
        if arguments.admin_host or is_open:
            raise CommandError(
                "--admin-host and --admin-open-metrics go with --admin", Status.USAGE
            )
        return None
    return Admin(
        uri,
        tuple(arguments.admin_host),
        is_open,
        tls if uri.startswith(SECURE) else None,
        authentication,
        authorization,
    )


@asynccontextmanager
async def administered(
    node: Node,
    broker: Broker | None,
    admin: Admin | None,
    service: Service,
    cluster: Cluster | None = None,
    process: Process | None = None,
    **configuration: object,
) -> AsyncGenerator[Started]:
    """Watch a node, and serve its admin interface if it is asked for.

    Enter it before the first listener opens: then the events of its first connection are kept, and
    the management service of a broker answers the admin paths to the first client.

    Args:
        node: The node.
        broker: Its broker, with its operations; `None` for a node without one.
        admin: The interface.
        service: The ties to the system, with the parts that a reload reads anew.
        cluster: The part of the broker in a cluster; `None` for none.
        process: Its ties to others, as one of several, which are told in place of what is printed;
            `None` for a program alone.
        **configuration: Options in effect, for operators to see.

    Yields:
        The function that ends the start: the node counts as started from then on. It prints
        `listening` with the URI of each listener, `admin` with that of the admin interface, and
        `console` with the address for a browser.

    Raises:
        CommandError: It cannot be served.
    """
    managed = broker is not None and broker.options.management
    if admin is None and process is None and not managed:
        yield _print_listening
        return
    from ..actors.monitoring import Monitor
    from ..transports.admin import admin_paths, answer_paths, part_paths

    monitor = Monitor(node, broker, service.reloads, cluster)
    monitor.operations.setdefault("reload", partial(reload_on_request, service))
    monitor.configuration.update(configuration)
    options = options_of(admin)
    paths = admin_paths(monitor, options)
    if process is not None:
        process.paths, process.parts = paths, part_paths(monitor, process.place.siblings)
    if broker is not None and (managed or process is None):
        answer_paths(broker, paths, None if process is None else process.ask_whole)
        broker.events_of_all = None if process is None else process.events_of_all
    monitor.start()
    try:
        uri = None if admin is None else await serve_admin(node, admin, paths, options, service)

        def started(listeners: Sequence[Listener]) -> None:
            monitor.started = True
            if process is not None:
                process.started(listeners)
                return
            _print_listening(listeners)
            if uri is not None:
                print_admin(uri)

        yield started
    finally:
        await monitor.stop()


def _print_listening(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        print("listening", listener.uri, flush=True)


def print_admin(uri: str) -> None:
    """Print the URI of an admin interface, and that of its console."""
    print("admin", uri, flush=True)
    if not uri.startswith("unix:"):  # a browser opens no Unix socket
        print("console", f"{uri}/", flush=True)


def options_of(admin: Admin | None) -> AdminOptions:
    """Return the limits of an admin interface."""
    from ..transports.admin import AdminOptions

    if admin is None:
        return AdminOptions()
    return AdminOptions(hosts=admin.hosts, open_metrics=admin.open_metrics)


async def serve_admin(
    node: Node, admin: Admin, paths: AdminPaths, options: AdminOptions, service: Service
) -> str:
    """Start the HTTP server of an admin interface, and return its URI.

    Raises:
        CommandError: It cannot be served.
    """
    from ..transports.admin import AdminServer

    try:
        # Rules hold for peers without authentication, too: they are `anonymous`.
        is_open = admin.authentication is None and admin.authorization is None
        server = AdminServer(
            admin.uri,
            paths,
            options,
            tls=admin.tls,
            authentication=admin.authentication,
            permits=None if is_open else permits_of(admin.authorization),
        )
        await node.start(lambda: server, address="admin")
    except ModuleNotFoundError as error:
        raise CommandError(f"--admin needs the extra onward[admin]: {error}") from error
    except OSError as error:
        raise CommandError(f"cannot listen at {admin.uri}: {reason_of(error)}") from error
    except ValueError as error:
        raise CommandError(f"--admin: {error}", Status.USAGE) from error
    if admin.tls is not None:
        newest = admin.newest

        async def prepare() -> Callable[[], object]:
            tls = None if newest is None else newest()
            return await asyncio.to_thread(server.prepare_reload, tls)

        service.reloads.add(f"certificates of {server.uri}", prepare)
    return server.uri


def permits_of(authorization: Authorization | None) -> Callable[[Principal, str], bool]:
    """Return whether a principal may `read` or `operate`, as a function.

    Without rules an authenticated client of the broker may read, except for anonymous ones. To
    operate needs a rule: services are principals, too.
    """

    def permits(principal: Principal, needs: str) -> bool:
        if authorization is not None:
            return authorization.allows(principal, Action(needs))
        return needs == Action.READ.value and principal.method != "anonymous"

    return permits
