"""Relays: routes to registered clients on nodes that accept no connections.

```
client ──register──▶ service          starts a relay, stores the return route [link, client]
client ◀──address─── relay
sender ──[relay, echo]──▶ relay ──[link, echo]──▶ the client's node: echo
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import (
    Address,
    AddressInUse,
    AddressLike,
    EmptyRoute,
    Message,
    OnwardError,
    Route,
    UnknownAddress,
    address as address_of,
)
from ...protocol.bare import encode_string
from ...protocol.options import check_value
from ...protocol.payloads import CBOR
from ...protocol.services import (
    FORWARDING_API,
    REGISTER,
    STATIC_FORWARDING_API,
    ApiRequest,
    Method,
    ResponseStatus,
    ServiceError,
    check_name,
    decode_text,
    named_address,
    relayed,
)
from .._worker import Worker
from ..routing._given import several
from ..runtime._policy import MailboxOptions, Overflow
from ._options import RelayServiceOptions
from ._service import Service

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["Relay", "RelayService", "StaticRelayService"]

_OPTIONS: Final = RelayServiceOptions()


class Relay(Worker):
    """A worker that forwards its messages to a registered client. A relay service starts it.

    It replaces its own address by the stored route without the last address. It does not add
    itself to the return route, so replies do not pass it.

    Attributes:
        stored: The return route of the registration.
        used_at: When it was registered or last forwarded a message, in seconds of the loop's
            clock.
        passed: Messages forwarded.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, stored: Route, now: float) -> None:
        super().__init__()
        self.stored = stored
        self.used_at = now
        self.passed = 0

    def handle_message(self, message: Message) -> None:
        """Forward a message."""
        onward, back, payload, _, context = message
        try:
            if len(onward) < 2:
                raise EmptyRoute
            route = relayed(self.stored, onward)
            self.route(Message(route, back, payload, None, context))
        except OnwardError as error:
            self.node.lose(message, error)
            return
        self.used_at = self.node.loop.time()
        self.passed += 1


class RelayService(Service):
    """Ockam's `forwarding_service`: a service that starts a relay at a random address per client.

    It takes the BARE string `register` and answers, along the return route, with the address
    of the relay, which is also the last one of the answer's return route.

    ```python
    listener = await node.listen("tcp://0.0.0.0:4000", expose=["forwarding_service"])
    service = RelayService(expose_at=[listener.address])
    await node.start(lambda: service, address="forwarding_service")
    ```

    Args:
        expose_at: The listeners and links through which the relays can be reached. The link
            of a registration is always included, because a client pings through its relay.
        api: The address for requests that list relays (`GET` with an empty path) or remove one
            (`DELETE` and the relay's name, from its client); `None` for no such address.
        allow: The access control of registrations; all are permitted by default.
        options: Its limits and times.

    Attributes:
        registered: Registrations accepted.
    """

    def __init__(
        self,
        *,
        expose_at: Iterable[AddressLike] = (),
        api: AddressLike | None = FORWARDING_API,
        allow: AccessControl | None = None,
        options: RelayServiceOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, RelayServiceOptions)
        super().__init__(allow, options.expire_after)
        self.registered = 0
        self._options = options
        self._expose_at = several("expose_at", expose_at)
        self._api = None if api is None else address_of(api)
        self._relays: dict[Address, Relay] = {}
        self._unwatch: dict[Address, Callable[[], None]] = {}
        self._linked: set[Address] = set()  # relays with a route over a link

    @property
    def relays(self) -> dict[Address, Relay]:
        """The relays by their addresses."""
        return dict(self._relays)

    def on_start(self) -> None:
        """Register the second address, that of the API."""
        super().on_start()
        if self._api is not None:
            self.node.add_address(self.address, self._api)

    def _handle(self, message: Message) -> None:
        if message.to == self._api:
            self._serve(message, self._ask)
        elif message.return_route[0] in self._relays:
            # It would forward to a relay, which could forward back to it, for ever.
            raise ServiceError("a return route that begins with a relay")
        else:
            self._register(message, self._wanted(message))

    def _wanted(self, message: Message) -> Address | None:
        """Return the requested address; `None` for a random one.

        Raises:
            ServiceError: It is not a registration.
        """
        if decode_text(message.payload, "a registration") != REGISTER:
            raise ServiceError("a registration is the text 'register'")
        return None

    def _name(self, address: Address) -> str:
        return address.value.decode()

    # --- registering --------------------------------------------------------------------

    def _register(self, message: Message, wanted: Address | None) -> None:
        stored, now = message.return_route, self._now()
        relay = None if wanted is None else self._relays.get(wanted)
        if relay is None:
            address = self._make(stored, wanted)
        else:
            address = relay.address
            if relay.stored[:-1] != stored[:-1] and not self._options.takeover:
                raise ServiceError("the alias is taken")
            relay.stored, relay.used_at = stored, now
        try:
            self._expose(address, stored[0])
        except OnwardError as error:
            self._drop(address)
            raise ServiceError("no relay can be exposed") from error
        self._watch(address, stored)
        self.registered += 1
        answer = encode_string(self._name(address))
        context = message.context
        if context is not None and context.outside is not None:
            context = context._replace(outside=None)  # an answer: it goes along its return route
        try:
            self.route(Message(stored, (address,), answer, None, context))
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _make(self, stored: Route, wanted: Address | None) -> Address:
        if len(self._relays) >= self._options.max_relays:
            raise ServiceError("too many relays")
        relay = Relay(stored, self._now())
        try:
            address = self.spawn(lambda: relay, address=wanted)
        except AddressInUse:
            raise ServiceError("the address is in use") from None
        self._relays[address] = relay
        return address

    def _expose(self, address: Address, link: Address) -> None:
        for each in self._expose_at:
            self.node.expose(each, address)
        with suppress(UnknownAddress):  # it is the mailbox of a request
            self.node.expose(link, address)

    def _watch(self, address: Address, stored: Route) -> None:
        """Remove the relay as soon as the link on its route stops.

        Without a link, remove it when the first hop stops; such a relay can also expire.
        """
        self._forget(address)
        link = self.node.parts.table.link_on(stored)
        worker = None if link is None else self.node.parts.table.worker_at(link)
        if worker is not None and worker.notices_end:
            self._linked.add(address)
        with suppress(UnknownAddress):  # it is the mailbox of a request; the relay expires
            first = stored[0] if link is None else link
            self._unwatch[address] = self.node.watch(first, lambda: self._drop(address))

    def _forget(self, address: Address) -> None:
        self._linked.discard(address)
        unwatch = self._unwatch.pop(address, None)
        if unwatch is not None:
            unwatch()

    def _drop(self, address: Address) -> None:
        relay = self._relays.pop(address, None)
        if relay is not None:
            self._forget(address)
            relay.stop()

    def _sweep(self) -> None:
        oldest = self._now() - self._expire_after
        # One relay per link is kept. Others with the same route come from copies of one
        # registration, or from one that was given up.
        alike = Counter(relay.stored for relay in self._relays.values())
        for address, relay in list(self._relays.items()):
            only = address in self._linked and alike[relay.stored] == 1
            if relay.used_at <= oldest and not only:
                self.expired += 1
                alike[relay.stored] -= 1
                self._drop(address)

    def on_stop(self) -> None:
        """Forget the links; the relays have stopped already."""
        for address in list(self._unwatch):
            self._forget(address)
        self._relays.clear()

    # --- the API ------------------------------------------------------------------------

    def _ask(self, request: ApiRequest, message: Message) -> tuple[ResponseStatus, bytes]:
        if request.method is Method.GET and not request.path:
            return ResponseStatus.OK, CBOR.encode([self._name(each) for each in self._relays])
        if request.method is not Method.DELETE:
            return ResponseStatus.METHOD_NOT_ALLOWED, b""
        for address, relay in self._relays.items():
            if self._name(address) == request.path:
                # The owner's requests come along the same return route. The first address of it is
                # set by this node's link.
                if relay.stored[:-1] != message.return_route[:-1]:
                    return ResponseStatus.FORBIDDEN, b""
                self._drop(address)
                return ResponseStatus.OK, b""
        return ResponseStatus.NOT_FOUND, b""


class StaticRelayService(RelayService):
    """Ockam's `static_forwarding_service`: a service that starts relays at requested addresses.

    It takes an alias as a BARE string; the relay's address is the prefix and the alias. A repeated
    registration of an alias replaces its route.

    Args:
        expose_at: As for `RelayService`.
        api: As for `RelayService`.
        allow: As for `RelayService`.
        options: Its limits and times.
    """

    def __init__(
        self,
        *,
        expose_at: Iterable[AddressLike] = (),
        api: AddressLike | None = STATIC_FORWARDING_API,
        allow: AccessControl | None = None,
        options: RelayServiceOptions = _OPTIONS,
    ) -> None:
        super().__init__(expose_at=expose_at, api=api, allow=allow, options=options)

    def _wanted(self, message: Message) -> Address | None:
        alias = check_name(decode_text(message.payload, "an alias"), "an alias")
        return named_address(self._options.prefix, alias)
