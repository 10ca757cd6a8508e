"""`WatchService`: reports the end of workers of this node to watchers on other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ...protocol import Address, AddressLike, Message, OnwardError, Route, UnknownAddress
from ...protocol.options import check_value
from ...protocol.services import (
    WatchNotice,
    WatchRequest,
    WatchState,
    decode_watch_request,
    encode_watch_notice,
)
from ..access._exposed import Exposed
from ..routing._given import several
from ._options import WatchServiceOptions
from ._service import Service

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["WatchService"]

_OPTIONS: Final = WatchServiceOptions()


class _Watch:
    """One watch of a worker.

    Attributes:
        back: The return route of the latest request.
        until: The time at which it expires unless it is renewed.
        stopped: Whether the worker has stopped.
        link: The link over which it was requested, if it was over one.
        end: Function that ends the watch at the node.
    """

    __slots__ = ("back", "end", "link", "stopped", "until")

    def __init__(self, back: Route, until: float, link: Address | None) -> None:
        self.back = back
        self.link = link
        self.until = until
        self.stopped = False
        self.end: Callable[[], None] = lambda: None


class WatchService(Service):
    """A service that reports the end of workers of its node to a `RemoteWatch`.

    A watcher asks again and again, and each time gets the state of the worker as the answer; when
    the worker stops, it is told at once. A restart is no stop. A watch that is not renewed expires.
    The watches of one link are no more than the free ones, so one peer cannot have them all.

    Args:
        watchable: The addresses that may be watched. In a value, `*` stands for any text:
            `"order-*"`.
        allow: The access control of requests; all are permitted by default.
        options: Its limits and times.

    Attributes:
        watches: The number of watches.
    """

    def __init__(
        self,
        watchable: Iterable[AddressLike],
        *,
        allow: AccessControl | None = None,
        options: WatchServiceOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, WatchServiceOptions)
        super().__init__(allow, options.expire_after)
        self._watchable = Exposed((), several("watchable", watchable))
        self._options = options
        self._watches: dict[bytes, _Watch] = {}
        self._by_link: Counter[Address] = Counter()

    @property
    def watches(self) -> int:
        """The number of watches that have not expired."""
        return len(self._watches)

    def on_stop(self) -> None:
        """Report to all watchers that the service does not go on."""
        for token, watch in self._watches.items():
            watch.end()
            if not watch.stopped:
                self._tell(token, watch, WatchState.FORGOTTEN)
        self._forget()

    def on_failure(self, *_exc_info: object, **_named: object) -> None:
        """End the watches at the node; their watchers learn it when they renew them."""
        for watch in self._watches.values():
            watch.end()
        self._forget()

    def _forget(self) -> None:
        # The same instance may be started again, and would report its ended watches as alive.
        self._watches.clear()
        self._by_link.clear()

    def _handle(self, message: Message) -> None:
        request = decode_watch_request(message.payload)
        notice = WatchNotice(request.token, self._state(request, message.return_route))
        self._answer(message, encode_watch_notice(notice))

    def _state(self, request: WatchRequest, back: Route) -> WatchState:
        watch = self._watches.pop(request.token, None)
        if watch is None:
            if request.renews:
                return WatchState.FORGOTTEN
            begun = self._begin(request, back)
            if isinstance(begun, WatchState):
                self.refused += 1
                return begun
            watch = begun
        watch.back = back
        watch.until = self._now() + self._expire_after
        self._watches[request.token] = watch  # at the end: the next to expire come first
        return WatchState.STOPPED if watch.stopped else WatchState.ALIVE

    def _begin(self, request: WatchRequest, back: Route) -> _Watch | WatchState:
        if not self._watchable.allows(request.address):
            return WatchState.REFUSED
        link = self.node.parts.table.link_on(back)
        free = self._options.max_watches - len(self._watches)
        if free <= 0 or (link is not None and self._by_link[link] >= free):
            return WatchState.TOO_MANY
        watch = _Watch(back, 0.0, link)
        try:
            stopped = partial(self._stopped, request.token, watch)
            watch.end = self.node.watch(request.address, stopped)
        except UnknownAddress:
            return WatchState.REFUSED
        if link is not None:
            self._by_link[link] += 1
        return watch

    def _stopped(self, token: bytes, watch: _Watch) -> None:
        # It is kept until it expires: this notice may be lost, and the watcher asks again.
        watch.stopped = True
        self._tell(token, watch, WatchState.STOPPED)

    def _tell(self, token: bytes, watch: _Watch, state: WatchState) -> None:
        with suppress(OnwardError):  # its link is gone: the watcher asks again
            self.send(watch.back, encode_watch_notice(WatchNotice(token, state)))

    def _sweep(self) -> None:
        now = self._now()
        for token, watch in list(self._watches.items()):
            if watch.until > now:
                break
            watch.end()
            del self._watches[token]
            if watch.link is not None:
                self._by_link[watch.link] -= 1
                if not self._by_link[watch.link]:
                    del self._by_link[watch.link]
            self.expired += 1
