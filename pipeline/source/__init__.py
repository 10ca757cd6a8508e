"""The data source `onward`: event logs as tables, in batches and as a stream."""

__all__: list[str] = []
