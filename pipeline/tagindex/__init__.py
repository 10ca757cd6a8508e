"""The tag index made of many routes, and a live broker's held against its log."""

__all__: list[str] = []
