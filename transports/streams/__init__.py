"""Byte streams of all transports: endpoints, TLS, WebSocket and accepted connections."""
