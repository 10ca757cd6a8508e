"""Where Spark finds the data source `onward` by its name."""

__all__: list[str] = []
