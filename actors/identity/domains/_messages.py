"""The messages in requests to domains and in their answers, as far as they may be delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol import MAX_ROUTE_LENGTH, InDoubt, LinkDown, LinkLost, Message, OnwardError
from ....protocol.identity import (
    DomainEnded,
    DomainRequest,
    DomainResponse,
    Identity,
    ResultCode,
    short_text,
)
from ....protocol.ockam import decode_message
from .._carriage import ENGINE, is_reserved
from .._outgoing import ONWARD, Undelivered
from ._served_domains import ServedDomain

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["AskedDomain", "AskedDomains", "message_of"]


class AskedDomain(NamedTuple):
    """A message of this node to a domain that is under way.

    Attributes:
        own: The identity that it is of.
        domain: The domain.
        message: The message, as a transport has it.
        undelivered: Receives it if it has no answer.
    """

    own: Identity
    domain: Identity
    message: Message
    undelivered: Undelivered


class AskedDomains:
    """The messages of this node to domains that are under way, by the numbers of their requests.

    Args:
        router: The router.
        random: Returns a random number.
    """

    __slots__ = ("_of", "_random", "_router")

    def __init__(self, router: Router, random: Callable[[], int]) -> None:
        self._router: Final = router
        self._random: Final = random
        self._of: Final[dict[int, AskedDomain]] = {}

    def add(self, asked: AskedDomain) -> int:
        """Add a message; return the number of its request."""
        number = self._random()
        while number in self._of:
            number += 1
        self._of[number] = asked
        return number

    def end(self, ended: DomainEnded) -> None:
        """End a message: deliver its answer, or say why there is none."""
        router, asked = self._router, self._of.pop(ended.id, None)
        if asked is None:
            return  # the node ends
        outcome = _outcome_of(asked, ended, router.counts)
        if isinstance(outcome, OnwardError):
            asked.undelivered(asked.message, outcome)
        elif outcome is None:
            pass  # it wants no answer
        elif asked.own != router.own and router.engines.of(asked.own) is None:
            router.counts["answers to engines that have ended"] += 1
        else:
            link, _ = router.links.get((asked.own, asked.domain))
            link.receive_answer(outcome)

    def close(self) -> None:
        """End all, in doubt."""
        asked = list(self._of.values())
        self._of.clear()
        for each in asked:
            each.undelivered(each.message, LinkLost(short_text(each.domain), "the node ends"))


def message_of(
    request: DomainRequest, served: ServedDomain, counts: Counter[str]
) -> Message | None:
    """Return the message of a request as it is delivered; `None` if it may not be."""
    if request.protocol != ONWARD:
        counts["messages of another protocol"] += 1
        return None
    try:
        inner = decode_message(request.body)
    except OnwardError:
        counts["messages that cannot be read"] += 1
        return None
    onward, back = inner[0], inner[1]
    if onward[:1] == (ENGINE,):
        onward = served.worker, *onward[1:]
    if any(map(is_reserved, (*onward[:1], *back[:1]))):
        counts["messages with an address of the router"] += 1
        return None
    if not onward or not served.allows(onward[0]) or len(back) > MAX_ROUTE_LENGTH - 2:
        counts["requests to a domain for what is not exposed"] += 1
        return None
    return inner._replace(onward_route=onward)


def _outcome_of(
    asked: AskedDomain, ended: DomainEnded, counts: Counter[str]
) -> Message | OnwardError | None:
    """Return the answer to a message, why there is none, or `None` if none is wanted."""
    response, text = ended.response, short_text(asked.domain)
    if response is not None and ended.result is ResultCode.OK:
        return _answer_of(asked, response, counts)
    if ended.result is ResultCode.TIMEOUT and response is None:
        return InDoubt(text, "no member has answered in time")
    if ended.in_doubt or response is not None:
        return LinkLost(text, f"the way to the member is lost: {ended.result.name}")
    return LinkDown(text, f"no member has taken it: {ended.result.name}")


def _answer_of(
    asked: AskedDomain, response: DomainResponse, counts: Counter[str]
) -> Message | OnwardError | None:
    back, text = asked.message[1], short_text(asked.domain)
    if not response.body:
        return InDoubt(text, "the member gives no answer") if back else None
    try:
        inner = decode_message(response.body)
    except OnwardError:
        inner = None
    if (
        inner is None
        or response.protocol != ONWARD
        or inner[0] != back
        or not back
        or any(map(is_reserved, inner[1][:1]))
    ):
        counts["answers of domains that are none"] += 1
        return InDoubt(text, "the answer of the member is none")
    return inner
