"""What was routed, resolved again with another table or another method."""

__all__: list[str] = []
