"""The configuration of a running broker or node: read anew, compared, applied or refused."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..actors.broker import Broker
from ..actors.cluster import Cluster
from ..transports import TlsOptions
from ..transports.rsocket import RSocketListener
from ._authentication import principals_of
from ._broker_plan import DEFAULT_URI, limits_of
from ._cluster import clustering_of
from ._config import Configuration, Configure, listener_arguments
from ._config_options import ConfigOption
from ._reach import tls_of
from ._report_scrub import without_password
from ._rules import rules_of
from ._status import CommandError

__all__ = ["Change", "Reconfiguration", "changes", "cold"]

_logger: Final = logging.getLogger("onward.cli")

_Own: TypeAlias = list[tuple[str, argparse.Namespace]]
"""The URI of each listener, and the options in force for it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs between two configurations.

    Attributes:
        path: Its section and key; of a listener that has several, with its URI.
        old: The value in force.
        new: The value of the file.
        hot: Whether a reload can change it.
    """

    path: str
    old: object
    new: object
    hot: bool

    def __str__(self) -> str:
        return f"{self.path}: {shown(self.old)} -> {shown(self.new)}"


def shown(value: object) -> str:
    """Return a value for people."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else without_password(str(value))


def changes(old: argparse.Namespace, new: argparse.Namespace) -> Iterator[Change]:
    """Yield what differs between two configurations of a broker or a node.

    The values that listeners may have of their own are compared for each of them.
    """
    configuration: Configuration = old.configuration
    before, after = _own(old), _own(new)
    uris = [uri for uri, _ in before]
    if uris != [uri for uri, _ in after]:
        yield Change("listener.uri", uris, [uri for uri, _ in after], False)
        before = after = []
    several = len(before) > 1
    for option in configuration.options:
        if option.section == "listener":
            continue
        name = option.dest
        pairs = [(option.path, getattr(old, name), getattr(new, name))]
        if option.own:
            pairs = [
                (
                    f"{option.path} of {uri}" if several else option.path,
                    getattr(one, name),
                    getattr(two, name),
                )
                for (uri, one), (_, two) in zip(before, after, strict=True)
            ]
        for path, one, two in pairs:
            if one != two:
                yield Change(path, one, two, _is_hot(option, one, two))
    yield from _switched(old, new)


def _own(arguments: argparse.Namespace) -> _Own:
    if not any(each.own for each in arguments.configuration.options):
        return []  # a node: its listener has no options of its own
    found = listener_arguments(arguments) or [(DEFAULT_URI, arguments, None)]
    return [(uri, own) for uri, own, _ in found]


def _is_hot(option: ConfigOption, old: object, new: object) -> bool:
    """Whether a reload can change a value: a file cannot come or go, as TLS comes with it."""
    if option.dest == "certificate":
        return old is not None and new is not None
    return option.hot


def _switched(old: argparse.Namespace, new: argparse.Namespace) -> Iterator[Change]:
    """Yield whether authentication, authorization or the cluster comes or goes as a whole."""
    known = {each.dest for each in old.configuration.options}
    for path, option, of in (
        ("principals", "principals", principals_of),
        ("rules", "rules", rules_of),
        ("cluster", "cluster_seed", clustering_of),
    ):
        if option not in known:
            continue
        had, has = _has(of, old), _has(of, new)
        if had != has:
            yield Change(path, "some" if had else None, "some" if has else None, False)


def _has(of: Callable[[argparse.Namespace], object], arguments: argparse.Namespace) -> bool:
    try:
        return of(arguments) is not None
    except (OSError, ValueError):
        return True  # the part of the reload that reads them reports it


def cold(found: Sequence[Change]) -> str:
    """Return the text that refuses changes that need a restart; empty if there are none."""
    names = "; ".join(str(each) for each in found if not each.hot)
    return f"these need a restart: {names}" if names else ""


class Reconfiguration:
    """The configuration of a running broker or node, and the part of its reload that reads it anew.

    Args:
        arguments: The options in force.
        read: Reads them anew.

    Attributes:
        current: The options in force.
    """

    def __init__(self, arguments: argparse.Namespace, read: Configure) -> None:
        self.current = arguments
        self._read = read
        self._newest = arguments
        self._broker: Broker | None = None
        self._listeners: Sequence[RSocketListener] = ()
        self._cluster: Cluster | None = None

    def serves(
        self,
        broker: Broker,
        listeners: Sequence[RSocketListener],
        cluster: Cluster | None = None,
    ) -> None:
        """Keep what the options are applied to."""
        self._broker, self._listeners, self._cluster = broker, listeners, cluster

    def newest(self) -> argparse.Namespace:
        """Return the options that the other parts of a reload read their files by.

        Within a reload these are the new ones: this part is the first of all.
        """
        return self._newest

    def tls(self, number: int) -> TlsOptions | None:
        """Return the files of the certificates of a listener in the newest options."""
        return tls_of(_own(self._newest)[number][1], listens=True)

    def shared_tls(self) -> TlsOptions | None:
        """Return the files of the certificates of all listeners in the newest options."""
        return tls_of(self._newest, listens=True)

    async def prepare(self) -> Callable[[], object]:
        """Read all options anew and check them; return the function that applies what differs.

        Raises:
            ValueError: There are faults, or changes that need a restart; it has all of them.
        """
        self._newest = self.current
        try:
            new, found, apply = await asyncio.to_thread(self._compared)
        except (CommandError, ValueError) as error:
            raise ValueError("; ".join(str(error).splitlines())) from None
        self._newest = new

        def put() -> None:
            for each in found:  # first: a level may be among them
                _logger.info(
                    "the configuration has changed: %s",
                    each,
                    extra={"event": "configuration.changed"},
                )
            self.current = new
            apply()

        return put

    def _compared(self) -> tuple[argparse.Namespace, list[Change], Callable[[], object]]:
        new = self._read()
        found = list(changes(self.current, new))
        if told := cold(found):
            raise ValueError(told)
        adjust = self._adjusted(new)
        level: Any = new.log.upper()

        def apply() -> None:
            if any(each.path == "log.level" for each in found):
                logging.getLogger().setLevel(level)
            adjust()

        return new, found, apply

    def _adjusted(self, new: argparse.Namespace) -> Callable[[], object]:
        """Return the function that gives the broker and its listeners their new limits."""
        broker, listeners, cluster = self._broker, self._listeners, self._cluster
        if broker is None:
            tls_of(new, listens=True)
            return lambda: None  # a node
        limits = limits_of(new)
        clustering = limits.clustering

        def adjust() -> None:
            if cluster is not None and clustering is not None:
                cluster.adjust(clustering.options)
            broker.adjust(limits.options.waiting, limits.options.drain)
            for listener, (_, own) in zip(listeners, limits.listeners, strict=True):
                listener.adjust(own.links, own.websocket)

        return adjust
