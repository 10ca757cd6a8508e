"""Rows as messages: `df.write.format("onward")`."""

__all__: list[str] = []
