"""Sessions without I/O: the state machine that says when a session is up, down and over."""

__all__: list[str] = []
