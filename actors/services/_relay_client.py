"""The client side of a relay service: it registers, watches the relay, and registers again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from ...protocol import (
    AddressLike,
    Message,
    NotDelivered,
    OnwardError,
    Route,
    UnknownAddress,
    address as address_of,
    is_error_reply,
    read_error_reply,
)
from ...protocol.bare import encode_data, encode_string, encode_uint
from ...protocol.services import (
    FORWARDING_API,
    REGISTER,
    STATIC_FORWARDING_API,
    ApiRequest,
    Method,
    ServiceError,
    check_name,
    decode_text,
    encode_request,
)
from ...protocol.sessions import Action, LivenessOptions, Opener, SessionState
from ..sessions._liveness import Hook, LivenessWorker
from ..sessions._route_provider import RouteProvider, RouteSource
from ._errors import RelayClosed, RelayDown

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["RelayClient"]

_TIMES: Final = LivenessOptions()


class RelayClient(LivenessWorker):
    """A worker that keeps a relay to its node on another node.

    It registers, and pings itself through the relay. When three pings are not answered or the link
    stops, it registers again, with increasing delays. Messages from the relay arrive over the link,
    and its `expose` says which addresses they can reach.

    ```python
    relay = await RelayClient.on(node, "1#hub:4000 => static_forwarding_service", alias="printer")
    await relay.until_up()  # others: 1#hub:4000 => forward_to_printer => echo
    ```

    Args:
        route: The route to the service, the service's own address last; or a function that returns
            it, such as `route_over`.
        alias: The alias, for a static relay service. `None` for a dynamic one: the relay has
            another address each time.
        api: The address of the service for removing relays; by default, the one that this
            library's services have. `None` for no removal at the end.
        times: The times of pings and registrations.
        on_up: Called when the relay is registered.
        on_down: Called when it is lost.
        on_closed: Called when the client is closed.

    Attributes:
        relay: The route to the relay from this node; empty while there is none.
        name: The relay's address at the service; empty before the first answer.
    """

    _down_error: ClassVar[type[NotDelivered]] = RelayDown
    _closed_error: ClassVar[type[NotDelivered]] = RelayClosed
    _opener: Opener

    def __init__(
        self,
        route: RouteSource,
        *,
        alias: str | None = None,
        api: AddressLike | None = "",
        times: LivenessOptions = _TIMES,
        on_up: Hook = None,
        on_down: Hook = None,
        on_closed: Hook = None,
    ) -> None:
        super().__init__(on_up, on_down, on_closed)
        self.relay: Route = ()
        self.name = ""
        self._given = route
        self._alias = None if alias is None else check_name(alias, "an alias")
        if api == "":
            api = FORWARDING_API if alias is None else STATIC_FORWARDING_API
        self._api = None if api is None else address_of(api)
        self._times = times
        self._trying: Route = ()

    @classmethod
    async def on(
        cls, node: Node, route: RouteSource, *, address: AddressLike | None = None, **options: Any
    ) -> Self:
        """Start a client on a node. The relay need not be registered yet: see `until_up`.

        Args:
            node: The node.
            route: As for the class.
            address: Its address; a random one by default.
            **options: As for the class.

        Raises:
            AddressInUse: Another worker has the address.
        """
        client = cls(route, **options)
        await node.start(lambda: client, address=address)
        return client

    def on_start(self) -> None:
        """Register."""
        random = Random(self.node.random_address().value)  # noqa: S311 - for waits
        self._secret = self.node.random_address().value
        self._finder = RouteProvider(self.node, self._given, self._register, self._failed)
        self._machine = self._opener = Opener(self._times, random.random)
        self._act(self._opener.start(self._now()))

    def _do(self, action: Action) -> None:
        if action is Action.ATTEMPT:
            self._finder.attempt(self._opener.epoch)
        elif action is Action.PING:
            self._ping()
        elif action is Action.DOWN:
            self.relay = ()
            super()._do(action)
        else:
            super()._do(action)

    # --- registering --------------------------------------------------------------------

    def _register(self, route: Route, epoch: int) -> None:
        self._trying = route[:-1]
        payload = encode_string(REGISTER if self._alias is None else self._alias)
        try:
            self._route_now(Message(route, (self.address,), payload))
        except OnwardError as error:
            self._failed(epoch, str(error))

    def _failed(self, epoch: int, cause: str) -> None:
        self._act(self._opener.failed(self._now(), epoch, cause))

    def _ping(self) -> None:
        # The relay removes its own address, and its last stored address is this worker: so the
        # ping comes back here, and nowhere else.
        try:
            self._route_now(
                Message((*self.relay, self.address), (), self._pong(self._opener.pings))
            )
        except OnwardError as error:
            self._lost(str(error), self._opener.epoch)

    def _pong(self, number: int) -> bytes:
        numbers = encode_uint(self._opener.epoch) + encode_uint(number)
        return encode_data(self._secret) + numbers

    def handle_message(self, message: Message) -> None:
        """Process an answer of the service, or a ping. Not to be overridden."""
        if is_error_reply(message):
            self._take_error(message)
        elif message.payload.startswith(encode_data(self._secret)):
            if message.payload in map(self._pong, self._due_pings()):
                self._opener.heard()
        else:
            self._take_answer(message)

    def _due_pings(self) -> range:
        last = self._opener.pings
        return range(max(1, last - self._times.max_unanswered), last + 1)

    def _take_answer(self, message: Message) -> None:
        name = ""
        with suppress(ServiceError):
            name = decode_text(message.payload, "the address of a relay")
        back = message.return_route
        if not name.endswith(self._alias or "") or not name or not back:
            self.node.dead_letter(message, "unhandled")
            return
        actions = self._opener.opened(self._now(), self._opener.epoch)
        if not actions:
            self.node.dead_letter(message, "late answer")
            return
        self._finder.taken()
        self.name = name
        # Along the route of the request: relays on it add nothing to return routes.
        self.relay = (*self._trying, back[-1])
        self._watch_link(back[0])
        self._act(actions)

    def _take_error(self, message: Message) -> None:
        reply = read_error_reply(message)
        if reply is None:
            self.node.dead_letter(message, "unhandled")
        elif self.state is SessionState.UP:
            if reply.address == self.relay[-1]:
                self._lost(reply.reason, self._opener.epoch)
        else:
            self._failed(self._opener.epoch, reply.reason)

    def _lost(self, cause: str, epoch: int) -> None:
        self._act(self._opener.lost(self._now(), epoch, cause))

    # --- the end ------------------------------------------------------------------------

    async def close(self, reason: str = "closed") -> None:
        """Remove the relay, if the service can, and stop this worker. Idempotent.

        Args:
            reason: The value for `cause`.
        """
        gone = asyncio.Event()
        try:
            self.node.watch(self.address, gone.set)
        except UnknownAddress:
            return
        await super().close(reason)
        await gone.wait()

    def _tell(self) -> None:
        # The service confirms a request of its API, if it has one: `on_stop` makes it.
        self._act(self._opener.acked())

    def _over(self) -> None:
        self._finder.stop()
        self.stop()

    async def on_stop(self) -> None:
        """Remove the relay, if the service has an API for it; then leave the route."""
        relay, self.relay = self.relay, ()
        if self.state is not SessionState.CLOSED:
            self._opener.close(self._now(), "stopped")
            self._opener.acked()
            self._forget_link()
            self._finder.stop()
            self._call(self._on_closed)
            self._tell_waiting()
        if relay and self._api is not None:
            await self._deregister((*relay[:-1], self._api))
        await self._finder.close()

    async def _deregister(self, route: Route) -> None:
        request = encode_request(ApiRequest(self._opener.epoch, self.name, Method.DELETE))
        # Without such an address, or without an answer, the relay expires.
        with suppress(OnwardError):
            await self.request(route, request, timeout=self._times.close_interval)
