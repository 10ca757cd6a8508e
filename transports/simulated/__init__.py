"""A simulated network: virtual time, latency, loss, reordering, partitions and crashes, all from a seed."""

__all__: list[str] = []
