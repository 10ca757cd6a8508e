"""`onward identity`: make, show and rotate keys, advertise a node, and trust or ban an identity."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ._access import read_secret
from ._arguments import Commands, no_log
from ._directory import add_directory_actions
from ._identity_rows import advert_rows, failures, identity_rows, print_rows, time_text
from ._reach import check_place, check_scheme
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..actors.identity import IdentityKeys
    from ..protocol.identity import KeyFile

__all__ = ["KeySource", "add_commands", "check_advertised"]

_RELAY: Final = "36#relay:"
"""What an address in an advert begins with that is the route to a relay."""

_DESCRIPTION: Final = "Make, show and rotate the keys of an identity, and trust or ban one."

_NEW: Final = """\
Make an identity, which is a public key, and the file of its keys, which only its owner can read.
The text of the identity is printed. A file that is there is never overwritten. The file is the
identity: keep a copy of it, as nothing else can make it again.
"""

_SHOW: Final = """\
Show what is known of a key file, of the text of an identity, which is checked by its checksum, or
of an advert, which is checked by its signature.
Secret keys are not shown. An encrypted file is shown without its passphrase, and checked with it.
"""

_ADVERT: Final = """\
Print the advert of a node: where it is reached, and the key to seal for it, signed by its identity.
It is one line of base64, and no secret. The URIs are tried in their order; without one, the node
can only be reached over its own connections. Print it anew when a URI changes, and after a
rotation: the newest counts.
"""

_ROTATE: Final = """\
Give an identity another key that messages are sealed to. The identity stays. The key before is
kept in the file, as it opens what is under way; so the next rotation has to be ten minutes later.
The file is replaced as a whole or stays as it is.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "identity",
        help="make, show and rotate the keys of an identity, and trust or ban one",
        description=_DESCRIPTION,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    new = actions.add_parser("new", help="make an identity", description=_NEW)
    _add_file(new)
    new.add_argument("--name", default="", metavar="TEXT", help="what it is for, for people")
    passphrase = new.add_mutually_exclusive_group()
    _add_passphrase(passphrase, "encrypt the file with the passphrase in this file")
    passphrase.add_argument(
        "--encrypt", action="store_true", help="ask for a passphrase, and encrypt the file with it"
    )
    new.set_defaults(command=_new)

    show = actions.add_parser(
        "show", help="show a key file, or check the text of an identity", description=_SHOW
    )
    show.add_argument(
        "what", metavar="FILE|TEXT", help="a key file, or an identity, a destination or an advert"
    )
    _add_passphrase(show, "the passphrase of an encrypted file, to check what is in it")
    show.add_argument("--json", action="store_true", help="print it as JSON")
    show.set_defaults(command=_show)

    rotate = actions.add_parser("rotate", help="rotate the sealing key", description=_ROTATE)
    _add_file(rotate)
    _add_passphrase(rotate, "the passphrase of an encrypted file; it is asked for by default")
    rotate.add_argument(
        "--force",
        action="store_true",
        help="rotate within ten minutes of the last time: what is under way may be lost",
    )
    rotate.set_defaults(command=_rotate)

    advert = actions.add_parser("advert", help="print the advert of a node", description=_ADVERT)
    _add_file(advert)
    advert.add_argument(
        "--advertise",
        metavar="URI",
        action="append",
        default=[],
        help=f"where other nodes reach this one, such as tcp://host:4000, or {_RELAY}IDENTITY, "
        "through a relay; may be repeated",
    )
    _add_passphrase(advert, "the passphrase of an encrypted file; it is asked for by default")
    advert.set_defaults(command=_advert)

    add_directory_actions(actions)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the key file")


def _add_passphrase(parser: argparse._ActionsContainer, text: str) -> None:
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help=text)


def _new(arguments: argparse.Namespace) -> None:
    with failures(arguments.file):
        from ..actors.identity import make_key_file
        from ..protocol.identity import identity_text

        passphrase = _given(arguments)
        if arguments.encrypt:
            passphrase = _asked(again=True)
        try:
            keys = make_key_file(arguments.file, name=arguments.name, passphrase=passphrase)
        except FileExistsError:
            raise CommandError(
                printable(f"{arguments.file}: it is there, and is not overwritten")
            ) from None
    print(identity_text(keys.identity))


def _rotate(arguments: argparse.Namespace) -> None:
    path: Path = arguments.file
    with failures(path):
        from ..actors.identity import rotate_key_file
        from ..protocol.identity import RotatedLately, SealingKey

        passphrase = _given_or_asked(path, arguments)
        try:
            keys = rotate_key_file(path, passphrase, lose_previous=arguments.force)
        except RotatedLately as error:
            raise CommandError(
                printable(
                    f"{path}: its last rotation was less than ten minutes ago, and messages may be "
                    f"under way to the key before: rotate it after {time_text(error.until)}, or "
                    "lose those by --force"
                )
            ) from None
        _report_unfinished(path)
    print(f"sealing key {SealingKey(keys.sealing_seed).key_id.hex()}")


def check_advertised(flag: str, address: str) -> None:
    """Check an address for the advert of a node: other nodes use a URI, or the name of a relay.

    Raises:
        CommandError: It is neither.
    """
    from ..protocol.identity import BadIdentity, parse_identity

    scheme, mark, _ = address.partition("://")
    if mark:
        check_scheme(flag, scheme)
        check_place(address)
        return
    if not address.startswith(_RELAY):
        told = f"{address!r} is no URI, such as tcp://host:4000, and no {_RELAY}IDENTITY"
        raise CommandError(printable(f"{flag}: {told}"), Status.USAGE)
    try:
        parse_identity(address.removeprefix(_RELAY))
    except BadIdentity as error:
        raise CommandError(printable(f"{flag}: {error}"), Status.USAGE) from None


def _advert(arguments: argparse.Namespace) -> None:
    path: Path = arguments.file
    with failures(path):
        from ..actors.identity import load_key_file
        from ..protocol.identity import (
            MAX_WEIGHT,
            AdvertAddress,
            NodeAdvert,
            SealingKey,
            serialize_advert_envelope,
            sign_advert,
        )

        for each in arguments.advertise:
            check_advertised("--advertise", each)
        keys = load_key_file(path, _given_or_asked(path, arguments))
        addresses = tuple(
            AdvertAddress(each, max(MAX_WEIGHT - at, 0))
            for at, each in enumerate(arguments.advertise)
        )
        now = time.time_ns() // 1_000_000
        # The seconds of the clock: a later advert has a greater version, and nothing is to be kept.
        version = now // 1000
        sealing = SealingKey(keys.sealing_seed).public
        advert = NodeAdvert(keys.identity, addresses, sealing, version, now)
        envelope = sign_advert(advert, keys.signing)
    print(b64encode(serialize_advert_envelope(envelope)).decode())


def _show(arguments: argparse.Namespace) -> None:
    path = Path(arguments.what)
    with failures(path):
        rows = _file_rows(path, arguments) if _is_there(path) else _text_rows(arguments.what)
    if arguments.json:
        print(json.dumps(rows))
        return
    print_rows(rows)


def _text_rows(text: str) -> dict[str, object]:
    from ..protocol.identity import (
        IDENTITY_TEXT_SIZE,
        BadIdentity,
        parse_destination,
        parse_identity,
    )

    if len(text.strip()) > 2 * IDENTITY_TEXT_SIZE:
        return advert_rows(text)
    try:
        if ":" in text:
            kind, identity = parse_destination(text.removeprefix("36#"))
            return {"destination": kind.name.lower(), **identity_rows(identity)}
        return identity_rows(parse_identity(text))
    except BadIdentity as error:
        raise CommandError(printable(f"{error}; and there is no such file")) from None


def _file_rows(path: Path, arguments: argparse.Namespace) -> dict[str, object]:
    from ..actors.identity import load_key_file, read_key_file
    from ..protocol.identity import key_id

    file: KeyFile = read_key_file(path)
    passphrase = _given(arguments)
    checked = file.lock is None or passphrase is not None
    if checked:
        with no_log("onward.actors.identity"):
            load_key_file(path, passphrase)
    _report_unfinished(path)
    return {
        **identity_rows(file.identity),
        "name": file.name,
        "created": time_text(file.created),
        "encrypted": file.lock is not None,
        "checked": checked,
        "sealing_key": key_id(file.sealing_key).hex(),
        "rotated": None if file.rotated is None else time_text(file.rotated),
    }


def _is_there(path: Path) -> bool:
    try:
        return path != Path() and path.exists()  # an empty text is no path
    except OSError:  # an advert is longer than a name may be
        return False


def _report_unfinished(path: Path) -> None:
    from ..actors.identity import unfinished_rotations

    for each in unfinished_rotations(path):
        print(
            printable(f"{each} was left by a rotation that was cut off, and can be removed"),
            file=sys.stderr,
        )


def _given(arguments: argparse.Namespace) -> str | None:
    path: str | Path | None = arguments.passphrase_file
    return None if path is None else read_secret("--passphrase-file", Path(path))


def _given_or_asked(path: Path, arguments: argparse.Namespace) -> str | None:
    from ..actors.identity import read_key_file

    encrypted = read_key_file(path).lock is not None
    passphrase = _given(arguments)
    return _asked() if encrypted and passphrase is None else passphrase


def _asked(*, again: bool = False) -> str:
    if not sys.stdin.isatty():
        raise CommandError(
            "a passphrase is needed, and there is no terminal to ask for it: "
            "use --passphrase-file FILE",
            Status.USAGE,
        )
    try:
        passphrase = getpass.getpass("Passphrase: ")
        if again and getpass.getpass("Again: ") != passphrase:
            raise CommandError("the two passphrases differ")
    except EOFError:
        raise CommandError("no passphrase was given") from None
    return passphrase


class KeySource:
    """A key file that a command sends by.

    Args:
        path: The file.
        arguments: The options of the command, with that of the file of a passphrase.

    Raises:
        CommandError: The file cannot be used.
        MissingExtra: The extra for identities is not installed.

    Attributes:
        keys: The keys.
    """

    def __init__(self, path: str | Path, arguments: argparse.Namespace) -> None:
        self._path: Final = Path(path)
        with failures(self._path):
            self._passphrase: Final = _given_or_asked(self._path, arguments)
            self.keys: Final = self._load()

    def _load(self) -> IdentityKeys:
        from ..actors.identity import load_key_file

        return load_key_file(self._path, self._passphrase)

    def reload(self) -> IdentityKeys:
        """Return the keys that are in the file now, of the same identity.

        Raises:
            ValueError: The file is of another identity.
            OSError: It cannot be read.
            OnwardError: As `load_key_file`.
        """
        keys = self._load()
        if keys.identity != self.keys.identity:
            raise ValueError(f"{self._path} is of another identity, which needs a restart")
        return keys
