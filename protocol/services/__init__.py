"""The payloads of the relay, publish/subscribe and discovery services."""

__all__: list[str] = []
