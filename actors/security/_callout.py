"""The method `callout`: a worker is asked."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol import RouteLike
from ...protocol.options import check_timeout
from ...protocol.security import (
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    format_callout,
    parse_callout_answer,
)
from .._node import Node
from ._authenticator import Authenticator

__all__ = ["CalloutAuthenticator"]


class CalloutAuthenticator(Authenticator):
    """The method that asks a worker about each peer with credentials, a certificate or a user id.

    The worker reads the question with
    [`parse_callout`][onward.protocol.security.parse_callout] and replies with
    [`format_callout_answer`][onward.protocol.security.format_callout_answer]. The question has the
    credentials in it: over a link, it needs TLS. If no valid answer comes in time, the peer is
    refused.

    Args:
        node: The node that asks, or a function that returns it: then the method may be made before
            the node.
        route: The route of the worker.
        timeout: Seconds for an answer.
    """

    method = "callout"

    def __init__(
        self, node: Node | Callable[[], Node], route: RouteLike, timeout: float = 2.0
    ) -> None:
        self._node = node
        self._route = route
        self._timeout = check_timeout(timeout)

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal in the answer, or `None` for a peer that shows nothing.

        Raises:
            NotAuthenticated: The worker refuses the peer.
            DeliveryError: No answer came; see `Node.request`.
            PayloadError: The answer is not valid.
        """
        if credentials is None and not peer.names and peer.user_id is None:
            return None
        question = format_callout(credentials, peer)
        node = self._node if isinstance(self._node, Node) else self._node()
        answer = await node.request(self._route, question, timeout=self._timeout)
        principal = parse_callout_answer(answer.payload)
        if principal is None:
            raise NotAuthenticated("refused")
        return principal
