"""The semantics that the dispatcher of a node serves."""

from __future__ import annotations

from typing import Final

from ...protocol.dispatch import BadSemantics, Mechanism, Provision, Semantics
from ._options import DispatchOptions
from ._stored import holds_on_disk

__all__ = ["check_default", "check_provision", "check_served"]

_ONE_NAME: Final = "tags are for one name, not for a pattern of names"


def check_served(semantics: Semantics, options: DispatchOptions) -> None:
    """Refuse semantics that would be ignored otherwise, in part.

    Raises:
        BadSemantics: They are of circuits, or of a hold on disk without a file for it.
    """
    if semantics.mechanism is Mechanism.LINK:
        raise BadSemantics(["a dispatcher of a node serves no circuits"])
    if holds_on_disk(semantics) and not options.hold_file:
        raise BadSemantics(["a hold on disk needs a file: DispatchOptions.hold_file"])


def check_provision(provision: Provision, options: DispatchOptions) -> None:
    """Refuse a provision, of this node or another one, that would be ignored otherwise, in part.

    Raises:
        BadSemantics: As of `check_served`, or they are of tags for a pattern of several names.
    """
    check_served(provision.semantics, options)
    if provision.semantics.tags and not provision.pattern.is_exact:
        # Each name that any message has would get consumers of its own, for ever.
        raise BadSemantics([_ONE_NAME])


def check_default(semantics: Semantics, options: DispatchOptions) -> None:
    """Refuse semantics that cannot be those of all other names.

    Raises:
        BadSemantics: As of `check_served`, or they are of tags.
    """
    check_served(semantics, options)
    if semantics.tags:
        raise BadSemantics([_ONE_NAME])
