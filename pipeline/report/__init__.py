"""Reports as one page to look at."""

__all__: list[str] = []
