"""The event log of a node or broker: recorded on the loop, written by a thread."""

__all__: list[str] = []
