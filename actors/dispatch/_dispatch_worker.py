"""The worker of a dispatcher: its rules, and what comes from neighbours."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Final

from ...protocol import (
    DELIVERY,
    NAME,
    Address,
    AddressError,
    Message,
    NotExposed,
    Route,
    is_error_reply,
    read_error_reply,
)
from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    BadName,
    BadTransit,
    ConsumerTarget,
    LaterVersion,
    LinkTarget,
    Target,
    Transit,
    decode_disposition,
    decode_transit,
    read_bundle_number,
    read_end,
    read_token,
)
from .._worker import Worker
from ._access import PrincipalOf
from ._arrival import Arrival, TransitPath, without
from ._bundle_receiver import BUNDLE_KINDS, BundleReceiver
from ._core import DispatchCore
from ._hold_store import HoldStore
from ._inspection import (
    ADDRESSES,
    AGES,
    CONTAINER_LINKS,
    CONTAINERS,
    DISPATCHER,
    NETWORK,
    age_figures,
    json_rows,
    name_rows,
    network_rows,
    statistics_of,
)
from ._options import DispatchOptions

__all__ = ["DISPATCH", "DispatchWorker"]

DISPATCH: Final = Address(0, b"dispatch")
"""The address of the worker of a dispatcher: expose it at a listener for neighbours."""


class DispatchWorker(Worker):
    """The worker of a dispatcher.

    Args:
        options: The options.
        principal_of: Returns the principal of the peer of a link; `None`: no peer has one.
        store: The file of messages on hold; `None`: no name holds on disk.
        clock: Returns the time since the Unix epoch, in seconds; `None`: that of the machine.

    Attributes:
        core: The parts of the dispatcher, once the worker has started.
    """

    def __init__(
        self,
        options: DispatchOptions,
        principal_of: PrincipalOf | None,
        store: HoldStore | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self._options: Final = options
        self._principal_of: Final = principal_of
        self._store: Final = store
        self._clock: Final = clock
        self._thread = 0
        self.core: DispatchCore
        self._receive: Callable[[Message], bool]
        self._bundle_receiver: BundleReceiver

    def on_start(self) -> None:
        """Add the rules."""
        self._thread = threading.get_ident()
        node = self.node
        options, store, clock = self._options, self._store, self._clock
        self.core = core = DispatchCore(
            self, self.resolve, options, self._principal_of, store, clock
        )
        self._receive = core.fast.transits.receive
        self._bundle_receiver = core.fast.transits.bundle_receiver
        network, provisions = core.topology.network, core.provisioning.provisions
        owner = self._placed
        node.add_rule(NAME, core.fast.enter, owner=owner)
        node.add_rule(DELIVERY, core.fast.reply, owner=owner)
        node.parts.undeliverable.ends[DELIVERY] = core.copies.failed
        node.parts.long_rows[ADDRESSES] = lambda: name_rows(core, provisions)
        node.parts.reports[DISPATCHER] = lambda: json_rows([statistics_of(core, network)])
        node.parts.long_reports[AGES] = lambda: age_figures(core)
        node.parts.reports[NETWORK] = lambda: json_rows(network_rows(core, network))
        for question in (CONTAINERS, CONTAINER_LINKS):
            # Containers stay there while there is no dispatcher.
            node.parts.reports.setdefault(question, list)
        core.topology.drive()

    def on_stop(self) -> None:
        """Remove the rules, and end what is under way."""
        owner = self._placed
        self.node.remove_rule(NAME, owner=owner)
        self.node.remove_rule(DELIVERY, owner=owner)
        self.node.parts.undeliverable.ends.pop(DELIVERY, None)
        reports = self.node.parts.reports
        gone = [DISPATCHER, NETWORK]
        if not reports.get(CONTAINERS, list)():
            gone += CONTAINERS, CONTAINER_LINKS
        for question in gone:
            reports.pop(question, None)
        self.node.parts.long_rows.pop(ADDRESSES, None)
        self.node.parts.long_reports.pop(AGES, None)
        if (tags := self.core.provisioning.tags) is not None:
            tags.stop()
        if self._store is not None:
            self._store.close()  # what is under way stays on disk, and goes on after the next start
        self.core.schedule.perform()
        self.core.attachments.close()
        self.core.circuits.close()
        # Last: with this word neighbours end what has no outcome yet.
        self.core.topology.close()

    # --- the rules --------------------------------------------------------------------------

    def resolve(self, message: Message) -> None:
        """Receive a message with a name or a token as its first address.

        Raises:
            AddressError: The address cannot be read.
        """
        if threading.get_ident() != self._thread:
            # The names belong to the loop's thread: go through the mailbox, and its limit.
            onward = (self.address, *message.onward_route)
            self.node.parts.router.dispatch(message._replace(onward_route=onward))
            return
        first = message.onward_route[0]
        try:
            if first.type == NAME:
                self.core.enter(message)
            elif first.value[:1] == b"t":
                self._transit(message, first)
            elif first.value[:1] == b"c":
                self.core.circuits.receive(message, first.value)
            elif first.value[:1] in BUNDLE_KINDS:
                self.core.fast.transits.bundle_receiver.receive_alone(first.value, message)
            elif first.value[:1] == b"v":
                self._offered(message, first)
            elif first.value[:1] == b"b":
                self._bundle_lost(message, first)
            else:
                self._outcome(message, first)
        except LaterVersion as error:
            self.core.counts["of a later version"] += 1
            raise AddressError(first, str(error)) from error
        except (BadName, BadTransit) as error:
            raise AddressError(first, error.reason) from error

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Handle what comes from a neighbour, or was sent on another thread."""
        rest = message.onward_route[1:]
        if not rest:
            self.core.topology.receive(message)
            return None
        if rest[0][0] != DELIVERY or not self._receive(message):
            self._handle_slowly(message, rest)
        return self._bundle_receiver.pause() if self._bundle_receiver.parts else None

    def _handle_slowly(self, message: Message, rest: Route) -> None:
        context = message.context
        outside = None if context is None else context.outside
        first = rest[0]
        if outside is not None and first.type != DELIVERY and not outside.allows(first):
            self.node.lose(message, NotExposed(first))
            return
        if first.type not in (NAME, DELIVERY):
            self.node.lose(message, NotExposed(first))
            return
        try:
            self.resolve(message._replace(onward_route=rest))
        except AddressError:
            self.core.counts["addresses that cannot be read"] += 1
            self.node.dead_letter(message, "unreadable address")

    # --- what comes from other dispatchers --------------------------------------------------

    def _transit(self, message: Message, first: Address) -> None:
        """Receive a message of the dispatcher before this one."""
        transit = decode_transit(first.value)
        core, link, back = self.core, message.source, message.return_route
        if transit.ingress == core.own:
            # No copy comes back to where its message entered; what enters here has other rights.
            raise BadTransit("a message that has entered here")
        if link is None or not core.topology.is_joined(message):
            core.counts["messages of no neighbour"] += 1
            self.node.lose(message, NotExposed(DISPATCH))
            return
        path: TransitPath | None = None
        if not transit.settled:
            if not back or back[0] != link or back[-1].type != DELIVERY:
                raise BadTransit("an unsettled message without a way back")
            text = core.topology.text_of(link)
            path = TransitPath(back, text, read_token(back[-1].value, b"r"))
            core.fast.unsettled.recall(link, path.token)
        self._bind_transit(message, transit, core.topology.text_of(link), path)

    def _bind_transit(
        self, message: Message, transit: Transit, link: str, path: TransitPath | None
    ) -> None:
        core = self.core
        now = core.now()
        until = now + transit.ttl / 1000 if transit.ttl else None
        arrival = Arrival(
            without(message, message.onward_route[1:]),
            transit.settled,
            transit.identity,
            link,
            path,
            transit.path,
            until,
            now + transit.wait / 1000 if transit.wait else until,
            transit.redirected,
            leg=True,
            share=core.totals.share_of(("neighbour", link), neighbour=True),
        )
        name = core.parse(transit.name)
        if path is not None and core.copies.is_of_another(link, path.token, name):
            arrival.repeated = True
            core.refuse_token(name, arrival)
            return
        state = core.bind(name, arrival)
        if state is not None and message.source is not None:
            core.fast.transits.learn(message.onward_route[0].value, transit, state, message.source)

    def _offered(self, message: Message, first: Address) -> None:
        """Receive word of a neighbour that it takes bundles."""
        link = message.source
        if link is None or self.core.topology.links.get(str(link)) != link:
            self.core.counts["messages of no neighbour"] += 1
            self.node.lose(message, NotExposed(DISPATCH))
            return
        self.core.bundles.offered(link, first.value)

    def _bundle_lost(self, message: Message, first: Address) -> None:
        """Receive an error reply for a bundle: nothing of it was handled, or all is in doubt."""
        read_bundle_number(first.value)
        failure = read_error_reply(message) if is_error_reply(message) else None
        state = RELEASED if failure is not None and failure.certain else MODIFIED
        link = message.source
        known = link is not None and is_error_reply(message)
        if not known or not self.core.bundles.lost(first.value, link, state):
            self.core.counts["outcomes that came late or for no delivery"] += 1
            self.node.dead_letter(message, "late answer")

    def _outcome(self, message: Message, first: Address) -> None:
        """Receive a reply, an error reply or a disposition for a copy."""
        core, copies = self.core, self.core.copies
        ended = read_end(first.value)
        if ended is not None:
            if message.source is not None and core.topology.is_joined(message):
                core.fast.unsettled.recall(message.source, ended[0])
                copies.source_ended(str(message.source), ended[0], settled=ended[1])
            return
        if first.value[:1] == b"d":
            token = read_token(first.value, b"d")
            told = decode_disposition(message.payload)
            core.fast.promote(token)
            copies.disposition(token, told.state, self._target(message, token), told.tally)
            return
        token = read_token(first.value, b"r")
        if copies.traced.is_report(message):
            if not copies.traced.pass_on(token, message):
                core.counts["reports of hops that could not be passed on"] += 1
            return
        core.fast.promote(token)
        target = self._target(message, token)
        if is_error_reply(message):
            failure = read_error_reply(message)
            certain = failure is not None and failure.certain
            copies.disposition(token, RELEASED if certain else MODIFIED, target)
            return
        found = copies.tokens.get(token)
        if found is None:
            core.counts["outcomes that came late or for no delivery"] += 1
            self.node.dead_letter(message, "late answer")
            return
        if target is None or target == found[1]:
            copies.answer_of(token, message)
        copies.disposition(token, ACCEPTED, target)

    def _target(self, message: Message, token: bytes) -> Target | None:
        """Return the target that a message comes from; `None` for a worker of this node.

        What comes over a link counts only for a copy that was sent over it.
        """
        source = message.source
        cell = None if source is None else self.node.parts.table.cell_at(source)
        if source is None or cell is None or not cell.worker.leaves_node:
            return None
        found = self.core.copies.tokens.get(token)
        if found is not None and isinstance(found[1], ConsumerTarget):
            record = found[0].consumers.get(found[1].consumer)
            if record is not None and record.route[0] == source:
                return record.target
        return LinkTarget(self.core.topology.text_of(source))
