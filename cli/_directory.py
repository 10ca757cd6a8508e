"""`onward lookup`, `onward identity trust`, `ban` and `unban`: the file of a directory."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ..protocol import OnwardError, counted
from ._arguments import Commands, no_log
from ._identity_rows import content_rows, failures, identity_rows, print_rows
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..actors.identity import DirectorySaver, TrustAnswer
    from ..protocol.identity import Directory, DirectoryRow, Identity

__all__ = ["add_commands", "add_directory_actions"]

_LOOKUP: Final = """\
Print what the directory of a node knows of an identity: its newest advert, and what the node itself
says of it. It is read from the file, also while a node has it open, which writes a change a second
later. The signature of the advert is verified.
"""

_TRUST: Final = """\
Set the trust of a node in an identity, from 0 to 255, in the file of its directory. 0 bans it: all
that has to do with it is refused. 128 is for any other, 255 for the owner's own. A node that has
the file open is asked to set it, and does so in a second or two; if it has not in five, the status
is 3, and the request waits in the file.
"""

_BAN: Final = """\
Ban an identity: set the trust of a node in it to 0, in the file of its directory. All from it and
to it is refused. A node that has the file open is asked to ban it, and does so in a second or two;
if it has not in five, the status is 3, and the request waits in the file.
"""

_UNBAN: Final = """\
End the ban of an identity: set the trust of a node in it to that in any, 128, in the file of its
directory. A node that has the file open is asked to do it, as by `ban`.
"""

_SHELVES: Final = {
    "held": "yes, and kept for good",
    "used": "yes, and used",
    "unknown": "others have told of it, and it is not used",
}
"""How a node knows an identity, for people, by the names of the shelves of a directory."""

ANSWER_TIME: Final = 5.0
"""Time that a node which has the file open has to take a request, in seconds."""
ANSWER_LOOK: Final = 0.1
"""Time between two looks for its answer, in seconds."""

_KEY: Final = "the identity, or a destination such as engine:TEXT"


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    lookup = commands.add_parser(
        "lookup",
        help="print what the directory of a node knows of an identity",
        description=_LOOKUP,
    )
    _add_places(lookup)
    lookup.add_argument("--json", action="store_true", help="print it as JSON")
    lookup.set_defaults(command=_lookup)


def add_directory_actions(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    """Add the actions of `onward identity` that change a directory."""
    trust = actions.add_parser("trust", help="set the trust in an identity", description=_TRUST)
    trust.add_argument("key", metavar="KEY", help=_KEY)
    trust.add_argument("trust", type=_trust, metavar="VALUE", help="from 0 to 255")
    _add_file(trust)
    trust.set_defaults(command=_set_trust)

    ban = actions.add_parser("ban", help="refuse all of an identity", description=_BAN)
    _add_places(ban)
    ban.set_defaults(command=_set_trust, trust=0)

    unban = actions.add_parser("unban", help="refuse it no longer", description=_UNBAN)
    _add_places(unban)
    unban.set_defaults(command=_set_trust, trust=128)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help=_KEY)
    _add_file(parser)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory", type=Path, required=True, metavar="FILE", help="the file of the directory"
    )


def _trust(text: str) -> int:
    number = int(text) if text.isdecimal() and text.isascii() else -1
    if not 0 <= number <= 255:
        raise argparse.ArgumentTypeError("it is a number from 0 to 255")
    return number


def _identity_of(text: str) -> Identity:
    """Read an identity, which may be in a destination or in an address of one."""
    from ..protocol.identity import BadIdentity, parse_destination, parse_identity

    try:
        if ":" in text:
            return parse_destination(text.removeprefix("36#")).identity
        return parse_identity(text)
    except BadIdentity as error:
        raise CommandError(printable(str(error)), Status.USAGE) from None


# --- to look up -----------------------------------------------------------------------------------


def _lookup(arguments: argparse.Namespace) -> None:
    path: Path = arguments.directory
    with failures(path):
        from ..actors.identity import find_directory_row

        identity = _identity_of(arguments.key)
        _check_there(path)
        row = find_directory_row(path, identity)
        if row is None:
            raise CommandError(printable(f"{path}: the identity is not in it"))
        rows = _record_rows(row)
    if arguments.json:
        print(json.dumps(rows))
        return
    known, trust = _SHELVES[cast("str", rows["known"])], _named(cast("int", rows["trust"]))
    print_rows({**rows, "known": known, "trust": trust})


def _check_there(path: Path) -> None:
    if not path.exists():
        raise CommandError(
            printable(
                f"{path}: there is no such file: a node makes it, by `--identity-directory FILE`"
            )
        )


def _record_rows(row: DirectoryRow) -> dict[str, object]:
    from ..protocol.identity import BadRecord, Verifiers, is_advert_signed, read_advert, read_row

    _, entry, shelf = read_row(row)
    local = entry.local
    rows: dict[str, object] = {
        **identity_rows(row.identity),
        "known": shelf.name.lower(),
        "trust": local.trust,
        "equivocated": entry.equivocated,
    }
    if local.connection is not None:
        rows["connection"] = local.connection.name.lower()
    advert = entry.advert
    if advert is None:
        return {**rows, "advert": "none"}
    rows["advert"] = advert.kind.name.lower()
    try:
        unverified = read_advert(advert)
    except BadRecord:
        return {**rows, "signature": "does not fit"}
    fits = is_advert_signed(unverified, Verifiers()) and unverified.advert.identity == row.identity
    if not fits:
        return {**rows, "signature": "does not fit"}
    return {**rows, "signature": "fits", **content_rows(unverified.advert)}


def _named(trust: int) -> str:
    from ..protocol.identity import TRUST_BANNED, TRUST_DEFAULT, TRUST_OWN

    names = {TRUST_BANNED: "banned", TRUST_DEFAULT: "as in any", TRUST_OWN: "own"}
    return f"{trust} ({names[trust]})" if trust in names else str(trust)


# --- to change ------------------------------------------------------------------------------------


def _set_trust(arguments: argparse.Namespace) -> None:
    path: Path = arguments.directory
    with failures(path), no_log("onward.actors.identity"):
        from ..actors.identity import DirectoryFileInUse
        from ..protocol.identity import ResultCode, short_text

        identity, trust = _identity_of(arguments.key), arguments.trust
        _check_there(path)  # one made by a mistake in its name would be a ban that no node knows
        try:
            with _opened(path) as directory:
                told = f", before {_named(directory.trust(identity))}"
                if directory.set_trust(identity, trust) is not ResultCode.OK:
                    raise _full(path)
        except DirectoryFileInUse:
            told = _ask(path, identity, trust)
    print(f"trust in {short_text(identity)}: {_named(trust)}{told}")


@contextmanager
def _opened(path: Path, unchanged: str = "; nothing has changed") -> Generator[Directory]:
    """Open a directory that no node has, with all done that waits in it; write what changes.

    Args:
        path: Its file.
        unchanged: What is told if no change could be written.
    """
    from ..actors.identity import DirectoryFile, DirectorySaver
    from ..protocol.identity import Directory, RowJournal, Verifiers

    journal = RowJournal()
    directory = Directory(Verifiers(), journal=journal)
    file = DirectoryFile(path)
    try:
        saver = DirectorySaver(directory, journal, file, _never)
        for _ in saver.load():
            pass
        _report_left(path, saver.restored.bad + saver.restored.refused)
        yield directory
        _save(path, saver, unchanged)
    finally:
        file.close()


def _save(path: Path, saver: DirectorySaver, unchanged: str) -> None:
    """Write what has changed, which is more than one batch if much has waited in the file."""
    told, status = unchanged, Status.FAILED
    trouble = "interrupted"
    try:
        while saver.save():
            told, status = "; a part of the changes is written", Status.IN_DOUBT
        trouble = saver.trouble
    except KeyboardInterrupt:
        told, status = "; the changes may be written", Status.IN_DOUBT
    if trouble:
        raise CommandError(printable(f"{path}: {trouble}{told}"), status)


def _ask(path: Path, identity: Identity, trust: int) -> str:
    """Ask the node that has a directory open to set a trust; return what to tell of it."""
    from ..actors.identity import TrustAnswer, write_trust_request

    number = 0
    try:
        number = write_trust_request(path, identity, trust)
        answer, told = _answer(path, number)
    except KeyboardInterrupt:
        raise _in_doubt(f"{path}: interrupted; the request may wait there") from None
    except (CommandError, OnwardError, OSError) as error:
        if not number:
            raise
        raise _in_doubt(f"{error}; the request may wait there") from error
    if answer is TrustAnswer.REFUSED:
        raise _full(path)
    if answer is TrustAnswer.WAITS:
        raise _in_doubt(
            f"{path}: the node that has it open has not answered in {ANSWER_TIME:g} s: the request "
            "waits there"
        )
    if answer is TrustAnswer.GONE:
        told = f"{path}: it is another file than before, without the request that was written"
        raise CommandError(printable(told), Status.IN_DOUBT)
    return told


def _answer(path: Path, number: int) -> tuple[TrustAnswer, str]:
    """Wait for the answer to a request; return it, and what to tell of its origin."""
    from ..actors.identity import DirectoryFileInUse, TrustAnswer, find_trust_answer

    until = time.monotonic() + ANSWER_TIME
    told = ", in the node that has the file open"
    while True:
        answer = find_trust_answer(path, number)
        if answer is not TrustAnswer.WAITS or time.monotonic() > until:
            return answer, told
        try:
            # The node may have stopped, or it was another command that had it.
            with _opened(path, unchanged=""):
                told = ""
        except DirectoryFileInUse:
            time.sleep(ANSWER_LOOK)


def _in_doubt(text: str) -> CommandError:
    return CommandError(
        printable(f"{text}, and is taken when it can be, or when a node starts"), Status.IN_DOUBT
    )


def _full(path: Path) -> CommandError:
    return CommandError(printable(f"{path}: it says something about as many identities as it may"))


def _never(seconds: float, action: Callable[[], object]) -> None:
    """Call nothing later: all is written at once."""


def _report_left(path: Path, left: int) -> None:
    if left:
        print(
            printable(f"{path}: left there, as they cannot be used: {counted(left, 'row')}"),
            file=sys.stderr,
        )
