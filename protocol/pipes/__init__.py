"""Pipes without I/O: the frames of a pipe, and the state machines at its two ends."""

__all__: list[str] = []
