"""Services that others reach by route: relays, publish/subscribe, discovery."""

__all__: list[str] = []
