"""`onward systemd-unit`: print a unit that runs a broker, a node or a dispatcher as a service."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ._arguments import Commands
from ._config_options import OwnSection, options_of

__all__ = ["add_commands", "path_flags", "unit", "with_whole_paths"]

_DESCRIPTION: Final = """\
Print a unit of systemd (253 or later) that runs a command as a service of its own dynamic user:
ready once it listens, drained at a stop, reloaded by `systemctl reload`, watched, and confined.
"""

_EPILOG: Final = """\
Relative names of files are made absolute, from the working directory. The service itself starts
elsewhere.

examples:
  onward systemd-unit broker --config /etc/onward/broker.toml \\
      > /etc/systemd/system/onward-broker.service
  onward systemd-unit broker --listen rsocket+tcp://0.0.0.0:8001
"""

SERVES: Final = ("broker", "node", "dispatch")

_UNIT: Final = """\
[Unit]
Description=Onward {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify-reload
ExecStart={command}
Restart=on-failure
# The processes of `onward broker --processes` are stopped by the one that has started them.
KillMode=mixed
WatchdogSec=30
# A stop drains for up to 25 seconds; SIGUSR2 for as long as the options of the command say.
TimeoutStopSec=90
LimitNOFILE=65536

# The files of this service: $RUNTIME_DIRECTORY, $STATE_DIRECTORY; and, for its keys,
# $CREDENTIALS_DIRECTORY, which is %d here. A relative name of a file in the configuration file is
# looked for in that one first.
DynamicUser=yes
RuntimeDirectory=onward-{name}
StateDirectory=onward-{name}
UMask=0077
# LoadCredential=server.pem:/etc/onward/server.pem

# PrivateUsers= is left out: it would hide the user ids of peers at Unix sockets.
# MemoryDenyWriteExecute= is left out: extensions of Python may need such memory.
CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome={home}
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallFilter=setpriority
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "systemd-unit",
        help="print a unit that runs a broker, a node or a dispatcher as a service",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("serves", choices=SERVES, help="the command that the service runs")
    parser.add_argument(
        "options", metavar="OPTIONS", nargs=argparse.REMAINDER, help="the options of that command"
    )
    servers = {name: commands.choices[name] for name in SERVES}
    parser.set_defaults(command=_command, servers=servers)


def _command(arguments: argparse.Namespace) -> None:
    serves: OwnSection = arguments.serves
    parser: argparse.ArgumentParser = arguments.servers[serves]
    parser.parse_args(arguments.options)  # it ends the command if they are wrong
    words = with_whole_paths(arguments.options, path_flags(parser, serves), Path.cwd())
    print(unit(serves, words, _program()), end="")
    for old, new in zip(arguments.options, words, strict=True):
        if old != new:
            print(f"onward systemd-unit: {old} is {new} in the unit", file=sys.stderr)


def path_flags(parser: argparse.ArgumentParser, serves: OwnSection) -> dict[str, bool]:
    """Return the options of a server with a value, and whether that is the name of a file."""
    flags = {
        each.flag: each.kind in ("file", "folder")
        for each in options_of(parser, serves)
        if each.kind != "true or false"
    }
    return {**flags, "--config": True}


def with_whole_paths(words: Sequence[str], flags: Mapping[str, bool], folder: Path) -> list[str]:
    """Return the words of a command line with absolute names of files.

    Args:
        words: The words.
        flags: The options that have a value, and whether that is the name of a file. A beginning
            that only one of them has stands for it, as on the command line.
        folder: The folder of relative names.
    """

    def is_path(flag: str) -> bool:
        found = [flag] if flag in flags else [each for each in flags if each.startswith(flag)]
        return len(found) == 1 and flags[found[0]]

    made: list[str] = []
    follows = False
    for word in words:
        flag, mark, value = word.partition("=")
        if follows:
            word = _whole(word, folder)
        elif mark and flag.startswith("--") and is_path(flag):
            word = f"{flag}={_whole(value, folder)}"
        follows = not follows and not mark and word.startswith("--") and is_path(word)
        made.append(word)
    return made


def _whole(name: str, folder: Path) -> str:
    """Return an absolute path; a URL stays as it is."""
    return name if "://" in name else os.path.normpath(folder / name)


def _program() -> list[str]:
    """Return the words that run `onward` as it is installed here."""
    script = Path(sys.prefix, "bin", "onward")
    found = str(script) if script.exists() else shutil.which("onward")
    return [sys.executable, "-m", "onward.cli"] if found is None else [found]


def unit(serves: str, options: list[str], program: list[str]) -> str:
    """Return the text of the unit.

    Args:
        serves: The command, such as `broker`.
        options: Its options.
        program: The words that run `onward`.
    """
    command = " ".join(map(_quoted, [*program, serves, *options]))
    words = [program[0], *options, *(each.partition("=")[2] for each in options)]
    in_home = any(each.startswith(("/home/", "/root/")) for each in words)
    return _UNIT.format(name=serves, command=command, home="read-only" if in_home else "yes")


def _quoted(word: str) -> str:
    """Return a word as it is written in a unit, where `%` and `$` stand for other words."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word and not set(word) & set(" \t\n\"'\\;"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
