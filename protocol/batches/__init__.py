"""Batches of messages that are sent again after a failure and taken once. Pure."""

__all__: list[str] = []
