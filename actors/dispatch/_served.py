"""The semantics that the dispatcher of a node serves."""

from __future__ import annotations

from typing import Final

from ...protocol import NAME
from ...protocol.dispatch import (
    BadSemantics,
    Provision,
    ProvisionsFile,
    Semantics,
    read_provisions,
)
from ._options import DispatchOptions
from ._stored import holds_on_disk

__all__ = ["check_default", "check_provision", "check_served", "check_told", "read_served"]

_NO_FILE: Final = (
    "a hold on disk needs a file: DispatchOptions.hold_file, hold_file in a topology, or "
    "--hold-file of `onward dispatch`"
)
_ONE_NAME: Final = "tags are for one name, not for a pattern of names"


def check_served(semantics: Semantics, options: DispatchOptions) -> None:
    """Refuse semantics that would be ignored otherwise, in part.

    Raises:
        BadSemantics: They are of a hold on disk without a file for it.
    """
    if holds_on_disk(semantics) and not options.hold_file:
        raise BadSemantics([_NO_FILE])


def check_provision(provision: Provision, options: DispatchOptions) -> None:
    """Refuse a provision, of this node or another one, that would be ignored otherwise, in part.

    Raises:
        BadSemantics: As of `check_served`, or they are of tags for a pattern of several names.
    """
    check_served(provision.semantics, options)
    if provision.semantics.tags and not provision.pattern.is_exact:
        # Each name that any message has would get consumers of its own, for ever.
        raise BadSemantics([_ONE_NAME])


def check_told(provision: Provision, options: DispatchOptions) -> None:
    """Refuse a provision of another node that is not to count here.

    A redirect is carried out with the rights of this program, at each node where a message enters:
    by the word of another node it may lead to names only, which that node can send to anyway.

    Raises:
        BadSemantics: As of `check_provision`, or they redirect to a route that is not one name.
    """
    check_provision(provision, options)
    redirect = provision.semantics.redirect
    if redirect is not None and (len(redirect.route) != 1 or redirect.route[0].type != NAME):
        raise BadSemantics(["another node may redirect to a name only"])


def check_default(semantics: Semantics, options: DispatchOptions) -> None:
    """Refuse semantics that cannot be those of all other names.

    Raises:
        BadSemantics: As of `check_served`, or they are of tags.
    """
    check_served(semantics, options)
    if semantics.tags:
        raise BadSemantics([_ONE_NAME])


def read_served(content: str | bytes, file: str, options: DispatchOptions) -> ProvisionsFile:
    """Read a file of provisions for a node with these options.

    Raises:
        FileError: The file has problems; the error lists all of them.
        BadSemantics: It has some that the dispatcher does not serve.
    """
    read = read_provisions(content, file, options.limits)
    reasons: list[str] = []
    for each in read.provisions:
        try:
            check_provision(each, options)
        except BadSemantics as error:
            reasons += [f"{file}: {each.pattern}: {reason}" for reason in error.reasons]
    if read.default is not None:
        try:
            check_default(read.default, options)
        except BadSemantics as error:
            reasons += [f"{file}: default: {reason}" for reason in error.reasons]
    if reasons:
        raise BadSemantics(reasons)
    return read
