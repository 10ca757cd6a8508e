"""The opening end of a session: a stable address in front of a route that is replaced."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from ...protocol import (
    AddressLike,
    Message,
    OnwardError,
    Route,
    is_error_reply,
    read_error_reply,
)
from ...protocol.options import check_value
from ...protocol.sessions import (
    Action,
    Frame,
    Opener,
    OpenSession,
    Ping,
    Pong,
    SessionFrameError,
    SessionOpened,
    SessionRefused,
    SessionState,
    encode_frame,
)
from ._end import SessionEnd
from ._liveness import Hook
from ._options import SessionOptions
from ._route_provider import RouteProvider, RouteSource

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["SessionClient"]

_OPTIONS: Final = SessionOptions()


class SessionClient(SessionEnd):
    """The opening end of a session. It shakes hands with a `SessionService`, pings, and reconnects.

    ```python
    session = await SessionClient.on(node, "c", "1#127.0.0.1:4000 => sessions")
    await session.until_up()
    answer = await node.request("c => echo", b"hi")
    ```

    Args:
        route: The route to the service, the service's own address last; or a function that returns
            it, such as `route_over`.
        expose: The local addresses that the other end can send requests to; none by default.
            Replies are always accepted.
        options: Its limits and times.
        on_up: Called when the session comes up.
        on_down: Called when the session goes down.
        on_closed: Called when the session is over.

    Attributes:
        resumed: Whether the other end is the same as before. False the first time, and after the
            other end was lost and started anew, without its state.
    """

    _opener: Opener

    def __init__(
        self,
        route: RouteSource,
        *,
        expose: Iterable[AddressLike] = (),
        options: SessionOptions = _OPTIONS,
        on_up: Hook = None,
        on_down: Hook = None,
        on_closed: Hook = None,
    ) -> None:
        check_value("options", options, SessionOptions)
        super().__init__(options, expose, (on_up, on_down, on_closed))
        self.resumed = False
        self._given = route
        self._trying: Route = ()
        self._pinged_at = 0.0

    @classmethod
    async def on(
        cls, node: Node, address: AddressLike | None, route: RouteSource, **options: Any
    ) -> Self:
        """Start a session on a node. It need not be up yet: see `until_up`.

        Args:
            node: The node.
            address: Its stable address; `None` for a random one.
            route: As for the class.
            **options: As for the class.

        Raises:
            AddressInUse: Another worker has the address.
        """
        session = cls(route, **options)
        await node.start(lambda: session, address=address)
        return session

    def on_start(self) -> None:
        """Begin the first handshake."""
        self._inner = self.node.random_address()
        self.node.add_address(self.address, self._inner)
        self._session = self.node.random_address().value[:16]
        self._finder = RouteProvider(self.node, self._given, self._open, self._failed)
        # From a random address, so that the seed of a simulated run repeats it.
        random = Random(self.node.random_address().value)  # noqa: S311 - for waits
        self._machine = self._opener = Opener(self._options.liveness, random.random)
        self._act(self._opener.start(self._now()))

    async def on_stop(self) -> None:
        """Inform the other end, once, if the session is not over yet; then leave the route."""
        self._finder.stop()
        self._end()
        await self._finder.close()

    def _do(self, action: Action) -> None:
        if action is Action.PING:
            self._pinged_at = self._now()
            self._send(self._route, Ping(self._token, self._opener.epoch, self._opener.pings))
        elif action is Action.ATTEMPT:
            self._finder.attempt(self._opener.epoch)
        else:
            if action is Action.OVER:
                self._finder.stop()
            super()._do(action)

    # --- handshakes ---------------------------------------------------------------------

    def _open(self, route: Route, epoch: int) -> None:
        self._trying = route[:-1]
        interval = max(1, round(self._options.liveness.ping_interval * 1000))
        frame = OpenSession(self._session, epoch, interval)
        try:
            self._route_now(Message(route, (self._inner,), encode_frame(frame), self.address))
        except OnwardError as error:
            self._failed(epoch, str(error))

    def _failed(self, epoch: int, cause: str) -> None:
        self._act(self._opener.failed(self._now(), epoch, cause))

    def _lost(self, cause: str, epoch: int) -> None:
        self._act(self._opener.lost(self._now(), epoch, cause))

    # --- frames -------------------------------------------------------------------------

    def _take_frame(self, message: Message) -> None:
        if is_error_reply(message):
            self._take_error(message)
        else:
            super()._take_frame(message)

    def _take(self, frame: Frame, message: Message) -> None:
        if isinstance(frame, SessionOpened):
            self._opened(frame, message)
        elif isinstance(frame, SessionRefused):
            self._was_refused(frame, message)
        elif isinstance(frame, Pong):
            self._answered(frame, message)
        else:
            raise SessionFrameError(f"{type(frame).__name__} to the opening end")

    def _opened(self, frame: SessionOpened, message: Message) -> None:
        if not message.return_route:
            raise SessionFrameError("a handshake's answer without a return route")
        known = self._token
        actions: tuple[Action, ...] = ()
        if frame.session == self._session:
            actions = self._opener.opened(self._now(), frame.epoch)
        if not actions:
            self._too_late(message)
            return
        self._finder.taken()
        self.resumed = frame.token == known
        if known and not self.resumed:
            self._fail_waiting("the other end was lost")
        self._token = frame.token
        # Along the route of the request, not of the answer: a relay on the route adds nothing
        # to return routes.
        self._route = (*self._trying, message.return_route[-1])
        self._watch_link(message.return_route[0])
        self._act(actions)

    def _was_refused(self, frame: SessionRefused, message: Message) -> None:
        if frame.session != self._session or frame.epoch != self._opener.epoch:
            self._too_late(message)
        elif frame.final:
            self._act(self._opener.told(frame.reason))
        else:
            self._failed(frame.epoch, frame.reason)

    def _answered(self, frame: Pong, message: Message) -> None:
        if frame.token != self._token or frame.epoch != self._opener.epoch:
            self._too_late(message)
            return
        self._opener.heard()
        if frame.number == self._opener.pings:
            self._round_trip = self._now() - self._pinged_at

    def _take_error(self, message: Message) -> None:
        """Handle an error reply of a node on the route to a frame."""
        reply = read_error_reply(message)
        if reply is None:
            self._bad += 1
        elif self.state is SessionState.UP and reply.address == self._route[-1]:
            self._lost(reply.reason, self._opener.epoch)
        elif reply.certain:
            self._failed(self._opener.epoch, reply.reason)
