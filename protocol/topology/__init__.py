"""Topology files: nodes, workers, listeners and links as values, read from TOML."""

__all__: list[str] = []
