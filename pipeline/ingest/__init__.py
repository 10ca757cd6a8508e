"""Event logs into a lake of plain Parquet, each event exactly once."""

__all__: list[str] = []
