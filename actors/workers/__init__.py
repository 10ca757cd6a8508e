"""Workers to compose: forwarders, proxies, taps, spreaders, spawners."""

__all__: list[str] = []
