"""The worker of the router of identities: its rule, and what comes from other nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ...protocol import IDENTITY, Message
from ...protocol.identity import SealingKeys, SigningKey, Verifiers
from .._worker import Worker
from ..access import Access, local_only
from ._figures import IDENTITIES, IDENTITY_FIGURES, Figures
from ._local_requests import LocalRequests
from ._options import IdentityOptions
from ._router import Router
from .directory._worker import DIRECTORY, DirectoryWorker
from .domains._part import DomainsPart
from .topics._part import Topics

__all__ = ["RouterWorker"]


class RouterWorker(Worker):
    """The worker of the router of a node; that of its directory is its child.

    Args:
        key: The key of the node.
        sealing: The keys that others seal to.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        directory: The file of the directory; `None`: it is in memory alone.

    Attributes:
        router: The router, once the worker has started.
        requests: What the workers of the node ask the router for.
        domains: The domains of the node.
        topics: Its topics.
    """

    def __init__(
        self,
        key: SigningKey,
        sealing: SealingKeys,
        options: IdentityOptions,
        milliseconds: Callable[[], int],
        directory: Path | None = None,
    ) -> None:
        super().__init__()
        verifiers = Verifiers()
        self._given: Final = key, sealing, options, milliseconds, verifiers
        self._directory: Final = DirectoryWorker(verifiers, milliseconds, directory)
        self.router: Router
        self.requests: LocalRequests
        self.domains: DomainsPart
        self.topics: Topics

    async def on_start(self) -> None:
        """Start the directory, and add the rule."""
        only = Access(incoming=local_only)
        await self.start_child(lambda: self._directory, address=DIRECTORY, access=only)
        self.router = Router(self, *self._given, self._directory.service)
        key, _, options, *_ = self._given
        self.domains = DomainsPart(self, self.router, key, options)
        self.router.add_part(self.domains)
        self.requests = LocalRequests(self.router, self)
        self.topics = Topics(self.router, self, self.requests, key, options)
        self.router.add_part(self.topics)
        figures = Figures(self.router, self.topics, self.domains)
        self.router.add_part(figures)
        self.node.parts.reports[IDENTITY_FIGURES] = lambda: [figures.row()]
        self.node.parts.reports[IDENTITIES] = figures.rows
        self.node.add_rule(IDENTITY, self.router.resolve, owner=self._placed)
        self.every(_SIGN_OF_LIFE, self.router.say_alive)

    def on_stop(self) -> None:
        """Remove the rule, and end the links to other nodes."""
        self.node.remove_rule(IDENTITY, owner=self._placed)
        for question in (IDENTITY_FIGURES, IDENTITIES):
            self.node.parts.reports.pop(question, None)
        self.router.close()

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Receive a frame of another node, or a request of a worker of this one."""
        if not self.requests.take(message):
            self.router.peers.receive(message)
        return None


_SIGN_OF_LIFE: Final = 60.0
"""Time after which a node greets all others again, in seconds: a node that has missed frames before
learns of it, and one that has no session any more says so. So often it looks at its clock, too."""
