"""What became of one message, hop by hop: traces, and spans for OpenTelemetry."""

__all__: list[str] = []
