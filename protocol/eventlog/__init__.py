"""The event log: what a node or broker records of what it routes. Pure: bytes in, records out."""

from ._records import FLOW, HOP, Asked, EventName, Flag, Flow, Hop, Kind, Outcome, RouteEvent

__all__ = [
    "FLOW",
    "HOP",
    "Asked",
    "EventName",
    "Flag",
    "Flow",
    "Hop",
    "Kind",
    "Outcome",
    "RouteEvent",
]
