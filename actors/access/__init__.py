"""Who may send what to whom: access controls, and what to combine them with."""

__all__: list[str] = []
