"""The `onward` command: a broker, a node, and messages from the shell."""

from ._start import main

__all__ = ["main"]
