"""The messages in requests to domains and in their answers, as far as they may be delivered."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

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

__all__ = ["AskedDomain", "message_of", "outcome_of"]


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


def outcome_of(
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
