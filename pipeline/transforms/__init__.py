"""Tables to tables: pure functions of data frames."""

__all__: list[str] = []
