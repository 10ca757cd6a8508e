"""One conformance suite for every transport, yours included."""

__all__: list[str] = []
