"""Routed actors: workers, routes, transports, and an RSocket broker built of the same parts.

Import from the packages in here: `from onward.actors import Node, Worker`. This one has the
version and imports none of them.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""The version, as `onward --version` and the metadata of the installed package have it."""
