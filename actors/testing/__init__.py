"""For tests of your own workers: a virtual clock, a node to test on, probes."""

__all__: list[str] = []
