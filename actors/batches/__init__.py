"""Take batches of messages, each once however often it is sent."""

__all__: list[str] = []
