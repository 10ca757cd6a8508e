"""A handler that keeps its deliveries, to be settled by the test."""

from __future__ import annotations

from onward.actors.dispatch import Consumer, Received

__all__ = ["Kept"]


class Kept:
    """A handler that keeps its deliveries, to be settled by the test.

    Attributes:
        deliveries: The deliveries.
        consumer: What it was attached as, if its test needs that.
    """

    consumer: Consumer

    def __init__(self) -> None:
        self.deliveries: list[Received] = []

    def __call__(self, delivery: Received) -> None:
        self.deliveries.append(delivery)

    @property
    def last(self) -> Received:
        return self.deliveries[-1]

    @property
    def payloads(self) -> list[bytes]:
        return [each.payload for each in self.deliveries]
