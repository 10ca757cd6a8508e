"""What a broker tells about itself, as a destination like any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...protocol import Message
from .._worker import Worker

if TYPE_CHECKING:
    from ._broker import Broker

__all__ = ["MANAGEMENT_SERVICE", "Management"]

MANAGEMENT_SERVICE = "onward.management"
"""The service name under which a broker answers questions about itself."""


class Management(Worker):
    """Answer `routes` and `statistics` with JSON in UTF-8.

    Any other payload is answered with an object whose `error` says what can be asked.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker

    def handle_message(self, message: Message) -> None:
        """Answer one question along the return route."""
        if message.return_route:
            answer = self._answer(message.payload.strip())
            self.reply(message, json.dumps(answer, separators=(",", ":")).encode())

    def _answer(self, question: bytes) -> Any:
        if question == b"routes":
            return [
                {
                    "route": str(row.route_id),
                    "service": row.service,
                    "tags": dict(row.tags),
                    "peer": row.peer,
                    "outstanding": row.outstanding,
                    "requests": row.requests,
                    "since": row.since,
                    "latency": row.latency,
                }
                for row in self._broker.routes()
            ]
        if question == b"statistics":
            statistics = self._broker.statistics()
            return {name: getattr(statistics, name) for name in statistics.__slots__}
        return {"error": "ask for 'routes' or 'statistics'"}
