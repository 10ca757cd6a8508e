"""What BARE writes of numbers, texts and bytes: the shapes that payloads of Ockam's services have."""

__all__: list[str] = []
