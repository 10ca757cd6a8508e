"""The authorization of a broker: its rules, which may be replaced, and plug-ins beside them."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from inspect import iscoroutine
from typing import Final, TypeAlias, cast

from ...protocol.broker import TagList, TagSet, WellKnownKey, format_id, null_last, tag_set
from ...protocol.options import Count, Seconds, check_options
from ...protocol.security import (
    Action,
    Decision,
    NotAllowed,
    Principal,
    Rules,
    add_forced_tags,
)

__all__ = [
    "Authorization",
    "AuthorizationOptions",
    "AuthorizationStatistics",
    "Authorizer",
    "load_authorizer",
]

_logger = logging.getLogger("onward.actors.security")

GROUP: Final = "onward.authorizers"
"""The entry-point group of authorizers: each is a function that makes one, without arguments."""

MAX_REMEMBERED_TAGS: Final = 16
"""Most tags of an action for which the answer of an authorizer is kept."""

_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)

_Question: TypeAlias = tuple[Principal, Action, TagSet]


class Authorizer(ABC):
    """A policy engine beside the rules, such as one for Cedar or for a database of grants.

    An entry point of the group `onward.authorizers` names a function that makes one.
    """

    @abstractmethod
    def allows(self, principal: Principal, action: Action, tags: TagSet) -> bool | None:
        """Decide whether a principal may do an action.

        It is called on the loop of the node, between frames: work of more than a millisecond delays
        all connections. Answers are kept; see `AuthorizationOptions`. An error counts as `False`.

        Args:
            principal: The principal.
            action: The action.
            tags: The tags that a destination gets, or those of a query, forced tags included.

        Returns:
            `False` denies, whatever others say; `True` allows; `None` leaves it to the rules and to
            other authorizers.
        """


def load_authorizer(name: str) -> Authorizer:
    """Return a new authorizer of an installed plug-in.

    Args:
        name: The name of its entry point in the group `onward.authorizers`.

    Raises:
        ValueError: There is none of that name.
        TypeError: It makes no `Authorizer`.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        raise ValueError(f"no authorizer is called {name!r}; there are: {known}")
    made = found[name].load()()
    if not isinstance(made, Authorizer):
        raise TypeError(f"the plug-in {name!r} makes {type(made).__name__}, which is no Authorizer")
    return made


@dataclass(frozen=True, slots=True)
class AuthorizationOptions:
    """The limits of authorization by plug-ins.

    Attributes:
        answer_seconds: Seconds for which the answer of the authorizers to a question is kept.
        max_answers: Most answers that are kept; at the limit the oldest is forgotten, and asked for
            again. Answers about more than 16 tags are not kept.
    """

    answer_seconds: Seconds = 10.0
    max_answers: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class AuthorizationStatistics:
    """The figures of an authorization at one moment.

    Attributes:
        rules: Rules in force.
        replaced: How often the rules have been replaced.
        denied: Actions denied since the start, by action.
        failures: Errors of authorizers since the start; each has denied an action.
    """

    rules: int
    replaced: int
    denied: dict[str, int]
    failures: int


class Authorization:
    """The decisions on what principals may do: by rules, and by authorizers beside them.

    Args:
        rules: The rules. Nothing is allowed that no rule allows.
        authorizers: Policy engines beside the rules.
        options: The limits of their answers.
        clock: Returns a monotonic time in seconds.
    """

    def __init__(
        self,
        rules: Rules,
        authorizers: Sequence[Authorizer] = (),
        options: AuthorizationOptions = AuthorizationOptions(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._authorizers = tuple(authorizers)
        self._options = options
        self._clock = clock
        self._answers: dict[_Question, tuple[float, bool | None]] = {}
        self._watchers: list[Callable[[], object]] = []
        self._denied: Counter[str] = Counter()
        self._failures = 0
        self._replaced = 0

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self._rules

    @property
    def lasting(self) -> bool:
        """Whether a decision holds until the rules are replaced; with authorizers it does not."""
        return not self._authorizers

    def decide(self, principal: Principal, action: Action, tags: TagSet = frozenset()) -> Decision:
        """Decide whether a principal may do an action; nothing is counted.

        Args:
            principal: The principal.
            action: The action.
            tags: As for `Rules.decide`. The decision of an authorizer has no rule.
        """
        decision = self._rules.decide(principal, action, tags)
        if not self._authorizers or (decision.rule is not None and decision.rule.deny):
            return decision
        answer = self._ask(principal, action, tags)
        return decision if answer is None or answer == decision.allowed else Decision(answer)

    def allows(self, principal: Principal, action: Action, tags: TagSet = frozenset()) -> bool:
        """Whether a principal may do an action; nothing is counted."""
        if self._authorizers:
            return self.decide(principal, action, tags).allowed
        return self._rules.allows(principal, action, tags)

    def check(self, principal: Principal, action: Action, tags: TagSet = frozenset()) -> None:
        """Refuse an action that a principal may not do.

        Args:
            principal: The principal.
            action: The action.
            tags: As for `decide`.

        Raises:
            NotAllowed: It may not; it is counted.
        """
        if not self.allows(principal, action, tags):
            raise self.denial(action)

    def denial(self, action: Action, text: str = "") -> NotAllowed:
        """Count a denied action, and return its error.

        Args:
            action: The action.
            text: The tags as the principal has given them.
        """
        self._denied[action.value] += 1
        return NotAllowed(f"{action.value} {text}".rstrip())

    def registration(
        self, principal: Principal, service: str, tags: TagList, route_id: bytes
    ) -> TagList:
        """Return the tags of a destination, with the forced tags of its principal.

        Args:
            principal: The principal.
            service: The service name.
            tags: The tags that the destination brings.
            route_id: Its route id; a tag with it is the broker's affair.

        Raises:
            NotAllowed: The principal may not register these tags.
        """
        if not self.may_register(principal, service, tags, route_id):
            raise self.denial(Action.REGISTER)
        present = tag_set(tags)
        return null_last((*tags, *(tag for tag in principal.tags if tag not in present)))

    def may_register(
        self, principal: Principal, service: str, tags: TagList, route_id: bytes
    ) -> bool:
        """Whether a principal may register a destination; the arguments are those above."""
        brought = (tag_set(tags) | {(_SERVICE, service)}) - {(_ROUTE_ID, format_id(route_id))}
        try:
            all_tags = add_forced_tags(Action.REGISTER, brought, principal.tags)
        except NotAllowed:
            return False
        return self.allows(principal, Action.REGISTER, all_tags)

    def may_see(self, principal: Principal, tags: TagSet) -> bool:
        """Whether a principal may request a destination with these tags, or read all of them.

        The most that it can ask for are all tags of the destination.
        """
        if self.allows(principal, Action.READ):
            return True
        return principal.tags <= tags and self.allows(principal, Action.REQUEST, tags)

    # --- plug-ins -----------------------------------------------------------------------------

    def _ask(self, principal: Principal, action: Action, tags: TagSet) -> bool | None:
        """Return the answer of the authorizers, which may be a kept one."""
        now, question = self._clock(), (principal, action, tags)
        kept = self._answers.get(question)
        if kept is not None and now < kept[0]:
            return kept[1]
        answers = {self._answer(each, principal, action, tags) for each in self._authorizers}
        answer = False if False in answers else True if True in answers else None
        if len(tags) <= MAX_REMEMBERED_TAGS:
            self._answers.pop(question, None)
            while len(self._answers) >= self._options.max_answers:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = now + self._options.answer_seconds, answer
        return answer

    def _answer(
        self, authorizer: Authorizer, principal: Principal, action: Action, tags: TagSet
    ) -> bool | None:
        try:
            answer = cast("object", authorizer.allows(principal, action, tags))
            if answer is None or isinstance(answer, bool):
                return answer
            kind = type(answer).__name__
            if iscoroutine(answer):
                answer.close()
            raise TypeError(f"the answer of an authorizer is a bool or None, not {kind}")
        except Exception:
            # A policy that cannot be evaluated allows nothing.
            _logger.exception(
                "an authorizer has failed, and %s is denied",
                action.value,
                extra={"event": "authorization.failed"},
            )
            self._failures += 1
            return False

    # --- reload -------------------------------------------------------------------------------

    def replace(self, rules: Rules) -> None:
        """Put other rules in force, in one step. Call it on the loop of the broker's node.

        Decisions that were remembered are made anew. The connection of a destination is closed if
        its principal may not register it any more: they are checked in slices, soon. Requests under
        way go on.
        """
        self._rules = rules
        self._replaced += 1
        self._answers.clear()
        for watcher in tuple(self._watchers):
            watcher()

    def on_replace(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Add a function that is called after the rules were replaced.

        Returns:
            The function that removes it.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def statistics(self) -> AuthorizationStatistics:
        """Return the figures at this moment."""
        return AuthorizationStatistics(
            len(self._rules), self._replaced, dict(self._denied), self._failures
        )
