"""Sessions as workers: a stable address for a way that may have to be replaced."""

__all__: list[str] = []
