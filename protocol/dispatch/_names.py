"""Names: the addresses that a network of dispatchers resolves.

A name is opaque text. Only its beginning says where it counts:

```
orders, _eu/prices      mobile: in the whole network
_local/NAME             local: at this node
_topo/NODE/NAME         topological: what is `_local/NAME` at that node
_topo/all/NAME          topological: what is `_local/NAME` at each node
_temp/NODE/RANDOM       temporary: made by that node, and reachable without being told of
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ._errors import BadName
from ._limits import DispatchLimits
from ._tokens import canonical

__all__ = [
    "ALL_NODES",
    "MAX_NODE_NAME",
    "Name",
    "NameKind",
    "check_node_name",
    "parse_name",
    "temporary_name",
]

ALL_NODES: Final = "all"
"""What stands for all nodes in a topological name; no node may be called so."""

MAX_NODE_NAME: Final = 64
"""Most characters of the name of a node in a network of dispatchers."""

_LIMITS: Final = DispatchLimits()

# A name may come as `amqp:/NAME`, `amqp://HOST/NAME` or `/NAME`.
_LEADING: Final = re.compile(r"(?:amqps?:(?://[^/]*(?:/|\Z)|/)|/)*")


class NameKind(Enum):
    """The part of the network in which a name counts."""

    MOBILE = "mobile"
    """In the whole network: its consumers may be at any node, and move."""
    LOCAL = "local"
    """At the node where it is used."""
    TOPOLOGICAL = "topological"
    """At the node that it names, or at all of them."""
    TEMPORARY = "temporary"
    """At the node that has made it, from any node."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name that has been read.

    Attributes:
        kind: Where it counts.
        text: The name without scheme and host: one name has one text in all tables of a
            node. That of a topological name of the own node is the text of the local name.
        node: The node that a topological or a temporary name names; `all` for all nodes. Empty
            for others.
    """

    kind: NameKind
    text: str
    node: str = ""

    @property
    def local_text(self) -> str:
        """The text that a topological name has at the node that it names; `text` for others."""
        if self.kind is not NameKind.TOPOLOGICAL:
            return self.text
        return f"_local/{self.text.split('/', 2)[2]}"

    def __str__(self) -> str:
        return self.text


def check_node_name(text: str) -> str:
    """Return the name of a node of the network.

    Raises:
        BadName: It has not 1 to `MAX_NODE_NAME` printable characters, has a `/`, or is `all`.
    """
    if not 0 < len(text) <= MAX_NODE_NAME:
        raise BadName(text, f"a node has a name of 1 to {MAX_NODE_NAME} characters")
    if not text.isprintable() or "/" in text:
        raise BadName(text, "a node has a name of printable characters, without a '/'")
    if text == ALL_NODES:
        raise BadName(text, f"a node cannot be called {ALL_NODES!r}, which stands for all nodes")
    return text


def temporary_name(node: str, random: bytes) -> Name:
    """Make a temporary name, for replies.

    Args:
        node: The node that makes it.
        random: Bytes that no other name of the node has been made of and that cannot be guessed,
            such as 16 random ones.
    """
    return Name(NameKind.TEMPORARY, f"_temp/{node}/{random.hex()}", node)


def parse_name(value: str | bytes, own_node: str, limits: DispatchLimits = _LIMITS) -> Name:
    """Read a name.

    Args:
        value: The name; bytes are UTF-8, as in an address of type 34.
        own_node: The name of this node in the network.
        limits: Limits of bytes and tokens.

    Raises:
        BadName: It is empty, is over a limit, has characters that are not printable, or has a
            beginning such as `_topo/` without what has to follow.
    """
    text = _LEADING.sub("", _checked(value, limits), count=1)
    key = canonical(text)
    if not key:
        raise BadName(value, "there is no name")
    tokens = key.count(".") + 1
    if tokens > limits.max_tokens:
        raise BadName(value, f"{tokens} tokens are over the limit of {limits.max_tokens}")
    if not text.startswith("_"):
        return Name(NameKind.MOBILE, text)
    first, _, rest = text.partition("/")
    if first == "_local":
        if not canonical(rest):
            raise BadName(value, "a local name is _local/NAME")
        return Name(NameKind.LOCAL, text)
    if first not in ("_topo", "_temp"):
        return Name(NameKind.MOBILE, text)
    node, _, rest = rest.partition("/")
    is_topological = first == "_topo"
    if not (node and canonical(rest)):
        form = (
            "a topological name is _topo/NODE"
            if is_topological
            else "a temporary name is _temp/NODE"
        )
        raise BadName(value, f"{form}/NAME")
    if len(node) > MAX_NODE_NAME:
        raise BadName(value, f"a node has a name of 1 to {MAX_NODE_NAME} characters")
    if not is_topological:
        return Name(NameKind.TEMPORARY, text, node)
    if node == own_node:
        return Name(NameKind.LOCAL, f"_local/{rest}")
    return Name(NameKind.TOPOLOGICAL, text, node)


def _checked(value: str | bytes, limits: DispatchLimits) -> str:
    """Return the text of a name that is within the limit of bytes and printable."""
    if isinstance(value, str):
        # A lone surrogate, which UTF-8 cannot write, is not printable either.
        text, size = value, len(value.encode(errors="surrogatepass"))
    else:
        text, size = value.decode(errors="replace"), len(value)
    if size > limits.max_name:
        raise BadName(value, f"{size} bytes are over the limit of {limits.max_name}")
    if isinstance(value, bytes) and "\ufffd" in text and text.encode() != value:
        raise BadName(value, "not UTF-8")
    if not text.isprintable():
        raise BadName(value, "a character that is not printable")
    return text
