"""The management service of a node: its workers, links and dead letters for an operator."""

from __future__ import annotations

from typing import Final

from ...protocol import Message, OnwardError
from .._node_report import read_report
from .._worker import Worker

__all__ = ["ManagementService"]

_UNKNOWN: Final = b'{"error":"ask for workers, links, dead-letters or node"}'


class ManagementService(Worker):
    """A service that reports on its node, for `onward workers`, `links` and `dead-letters`.

    The payload of a request is the question, as text; that of the answer is JSON in UTF-8 with the
    name of the `node`, the `total` of rows and the `rows`, as many as fit into 48 KiB:

    - `workers`: the statistics of each worker, those with the most waiting messages first.
    - `links`: the statistics of each link and listener.
    - `dead-letters`: the kept dead letters, the last one first, without payloads; and the number
      of all by `reasons`.
    - `node`: the statistics of the node.
    - `dispatcher`, `addresses` and `network`: the figures, the names and the network of its
      `Dispatcher`, if it has one.

    The names of a dispatcher are read in slices, between which the node does other work.

    It changes nothing. A node has none unless it is started, and only peers that it is exposed
    to can ask; routes and names of workers are shown to them. So expose it at a listener of its
    own, such as a Unix socket:

    ```python
    await node.start(ManagementService, address="management")
    await node.listen("uds:///run/orders.sock", expose=["management"])
    ```
    """

    async def handle_message(self, message: Message) -> None:
        """Answer a question."""
        question = message.payload.decode(errors="replace").strip()
        answer = await read_report(self.node, question) or _UNKNOWN
        try:
            self.reply(message, answer)
        except OnwardError as error:
            self.node.dead_letter(message, error)
