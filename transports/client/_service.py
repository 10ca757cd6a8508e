"""The service of a client."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ...actors.broker import Handlers
from ...protocol.broker import RouteSetup, make_tags
from ._metadata import setup_metadata
from ._options import ClientOptions

__all__ = ["ClientService"]


class ClientService:
    """The service that a client registers, or none for a mere requester.

    Attributes:
        handlers: The handlers of its requests.

    Args:
        name: Its service name; `None` for a requester.
        tags: More tags.
        handlers: The handlers of its requests.

    Raises:
        AddressError: A key of a tag cannot be read.
        BrokerFrameError: A tag is too long.
    """

    def __init__(
        self, name: str | None, tags: Mapping[str, str | None], handlers: Handlers
    ) -> None:
        self._name = name
        self._tags = make_tags(tags)
        self.handlers = handlers
        handlers.serves(name or "")

    def metadata(self, route_id: UUID, options: ClientOptions) -> bytes | None:
        """Return the metadata of the SETUP of one connection.

        Raises:
            BrokerFrameError: The service name is too long.
        """
        if self._name is None:
            return None
        return setup_metadata(RouteSetup(route_id.bytes, self._name, self._tags), options)
