"""The identities of a node: the files of their keys, and what sends by them.

It needs the extra `onward[identity]`: `cryptography` has all primitives.
"""

__all__: list[str] = []
