"""The jobs of the command `onward pipeline`: the one place that reads and writes tables."""

__all__: list[str] = []
