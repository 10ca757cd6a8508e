"""Pipes as workers: ordered, confirmed, effectively-once delivery over any route."""

__all__: list[str] = []
