"""Topologies that run: the nodes, workers, listeners and links of a file."""

__all__: list[str] = []
