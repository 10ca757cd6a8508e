"""The rules of a broker: what the peers of its connections may register and request."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from ...protocol.broker import (
    MAX_TAGS,
    Entry,
    RouteAdd,
    RouteRemove,
    RouteSetup,
    TagList,
    TagSet,
    TooManyTags,
    WellKnownKey,
    normal_form,
    with_default_tags,
    with_owner,
)
from ...protocol.cluster import inherited, may_take
from ...protocol.options import check_value
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from .._worker import Worker
from ..security import Authorization
from ._management import MANAGEMENT_SERVICE
from ._options import BrokerOptions
from .table._index import TagIndexWorker
from .table._leaving import NOT_ALLOWED
from .table._remote import AnyRoute
from .table._route import BrokerRoute, told_owner
from .table._selector import Ask

__all__ = ["BrokerRules"]

_DEFAULT_TAGS: Final = 2
"""ServiceName and RouteId, which the broker adds if they are absent."""

CHECKED: Final = 500
"""Registrations that are checked by other rules before the loop does other things."""

_MANAGEMENT: Final = (int(WellKnownKey.SERVICE_NAME), MANAGEMENT_SERVICE)


class BrokerRules(Worker):
    """A broker with its rules; see `Broker`.

    Args:
        options: The limits of the broker.
        authorization: The decisions on what the peers of connections may do.
        broker_id: The identity of the broker; `None` for a new one.
    """

    def __init__(
        self,
        options: BrokerOptions,
        authorization: Authorization | None,
        broker_id: UUID | None,
    ) -> None:
        check_value("options", options, BrokerOptions)
        super().__init__()
        self.options = options
        self.broker_id = broker_id or uuid.uuid4()
        self.index = TagIndexWorker(options, self.broker_id.bytes)
        self.authorization = authorization
        # The route ids of the registrations that are still to be checked by other rules.
        self._to_check: deque[bytes] = deque()

    @property
    def authorization(self) -> Authorization | None:
        """The decisions on what the peers of connections may do; `None` without rules."""
        return self._authorization

    @authorization.setter
    def authorization(self, authorization: Authorization | None) -> None:
        self._authorization = authorization
        self.index.rule(ruled=authorization is not None)

    def _permitted_tags(self, setup: RouteSetup, principal: Principal) -> TagList:
        """Return the tags of a destination, with the forced ones of its principal.

        Raises:
            NotAllowed: As in `connect`.
        """
        authorization = self.authorization
        if authorization is None:
            return setup.tags
        tags = authorization.registration(principal, setup.service_name, setup.tags, setup.route_id)
        # Route Id: "Brokers can only allow one connection for a given Route Id to be connected at a
        # time." It would end the connection of the other.
        # So it is with a route at a peer broker, whether there is a link to it now or not, and with
        # a suspended session. A broker without rules, and a Java broker, tell no owner.
        asks, places = told_owner(principal), self.index.places_of(setup.route_id)
        if not may_take(places, asks):
            raise authorization.denial(Action.REGISTER)
        # What another zone has is known once a connection with it was closed for that.
        # One that has the id in this zone is compared by its broker.
        taken = None if inherited(places, asks) else self.index.taken_elsewhere
        if taken is not None and taken(setup.route_id, asks):
            raise authorization.denial(Action.REGISTER)
        return tags

    def _check_room(self, service: str, tags: TagList, route_id: bytes) -> None:
        """Refuse a destination that other brokers cannot be told: a list has a limit.

        Raises:
            TooManyTags: With the default tags, and with rules its owner, it has too many.
        """
        owner = self.authorization is not None
        if len(tags) + _DEFAULT_TAGS + owner <= MAX_TAGS or not self.index.followed:
            return
        told = normal_form(with_default_tags(tags, service, route_id))
        if len(told) + owner > MAX_TAGS:
            raise TooManyTags("tags, with those that the broker adds", MAX_TAGS)

    def told(self, change: RouteAdd | RouteRemove) -> RouteAdd | RouteRemove:
        """Return a change of an own destination as peer brokers are told it.

        With rules they are told its owner, so that no other principal takes over its route id, and
        since when it has had that. One that was registered without rules, and leaves no room for
        its owner, is told without.
        """
        place = None if isinstance(change, RouteRemove) else self.index.own_place(change.route_id)
        if isinstance(change, RouteRemove) or place is None or place.owner is None:
            return change
        if len(change.tags) >= MAX_TAGS:
            return change
        return with_owner(change, place.owner, place.since)

    def permitted(self, ask: Ask, principal: Principal) -> Ask:
        """Return the query of a request with the forced tags of its principal.

        It is decided before any look-up, so that a refusal says nothing about destinations. Each
        principal may ask the management service, which shows it its own part.

        Raises:
            NotAllowed: The rules do not allow the request, or it contradicts a forced tag.
            BrokerFrameError: With the forced tags it has too many, or no shard key.
        """
        authorization = self.authorization
        if authorization is None or _MANAGEMENT in ask.query:
            return ask
        narrowed = ask
        if principal.tags:
            try:
                narrowed = self.index.narrowed(ask, principal.tags)
            except NotAllowed:
                raise authorization.denial(Action.REQUEST, ask.text) from None
        if not authorization.allows(principal, Action.REQUEST, narrowed.query):
            raise authorization.denial(Action.REQUEST, ask.text)
        return narrowed

    def view_of(self, principal: Principal | None) -> Callable[[TagSet], bool] | None:
        """Return whether a principal may know of a destination with some tags, as a function.

        `None` if it may know of all, and read everything else.
        """
        authorization, peer = self.authorization, principal or ANONYMOUS
        if authorization is None or authorization.allows(peer, Action.READ):
            return None
        return partial(authorization.may_see, peer)

    def _on_other_rules(self) -> None:
        """Forget decisions on requests, and end registrations that are no longer allowed.

        That is done in slices, the first at once.
        """
        self.index.epoch += 1
        idle = not self._to_check
        own = [entry.route_id for entry in self.index.own_entries()]
        self._to_check = deque((*own, *self.index.suspended))
        if idle:
            self._check_some()

    def _check_some(self) -> None:
        """Check a slice of registrations by the rules of now."""
        index, own = self.index, self.broker_id.bytes
        try:
            for _ in range(min(CHECKED, len(self._to_check))):
                route_id = self._to_check.popleft()
                # A session may have been suspended, or resumed, since.
                entry = index.table.entry_of(route_id, own) or index.suspended.get(route_id)
                if entry is not None and self.authorization is not None:
                    self._check_registration(entry, self.authorization)
        finally:
            if self._to_check:
                self.after(0.0, self._check_some)

    def renew(self, route_id: UUID, principal: Principal) -> None:
        """Replace the principal of a connection that is a destination.

        The destination leaves if the rules do not allow its registration to this principal.
        """
        entry = self.index.table.get(route_id.bytes)
        route = None if entry is None else entry.target
        if entry is None or not isinstance(route, BrokerRoute):
            return
        route.destination = replace(route.destination, principal=principal)
        if self.authorization is not None:
            self._check_registration(entry, self.authorization)

    def _check_registration(self, entry: Entry[AnyRoute], authorization: Authorization) -> None:
        """End a registration that is no longer allowed."""
        destination = entry.target.destination
        principal, evict = destination.principal, destination.evict
        if principal is None or authorization.may_register(
            principal, entry.service_name, entry.tags, entry.route_id
        ):
            return
        self.index.leave(entry, NOT_ALLOWED)
        if evict is not None:
            evict(NOT_ALLOWED)
