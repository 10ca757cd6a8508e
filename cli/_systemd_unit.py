"""`onward systemd-unit`: print a unit that runs a broker or a node as a service."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

from ._arguments import Commands

__all__ = ["add_command", "unit"]

_DESCRIPTION: Final = """\
Print a unit of systemd (253 or later) that runs a command as a service of its own dynamic user:
ready once it listens, drained at a stop, reloaded by `systemctl reload`, watched, and confined.
"""

_EPILOG: Final = """\
example:
  onward systemd-unit broker --listen rsocket+tcp://0.0.0.0:8001 \\
      > /etc/systemd/system/onward-broker.service
"""

SERVES: Final = ("broker", "node")

_UNIT: Final = """\
[Unit]
Description=Onward {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify-reload
ExecStart={command}
Restart=on-failure
WatchdogSec=30
# A stop drains for up to 25 seconds; SIGUSR2 for as long as the options of the command say.
TimeoutStopSec=90
LimitNOFILE=65536

# The files of this service: $RUNTIME_DIRECTORY, $STATE_DIRECTORY; and, for its keys,
# $CREDENTIALS_DIRECTORY, which is %d here.
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


def add_command(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "systemd-unit",
        help="print a unit that runs a broker or a node as a service",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("serves", choices=SERVES, help="the command that the service runs")
    parser.add_argument(
        "options", metavar="OPTIONS", nargs=argparse.REMAINDER, help="the options of that command"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    print(unit(arguments.serves, arguments.options, _program()), end="")


def _program() -> list[str]:
    """Return the words that run `onward` as it is installed here."""
    script = Path(sys.prefix, "bin", "onward")
    found = str(script) if script.exists() else shutil.which("onward")
    return [sys.executable, "-m", "onward.cli"] if found is None else [found]


def unit(serves: str, options: list[str], program: list[str]) -> str:
    """Return the text of the unit.

    Args:
        serves: The command, `broker` or `node`.
        options: Its options.
        program: The words that run `onward`.
    """
    command = " ".join(map(_quoted, [*program, serves, *options]))
    in_home = program[0].startswith(("/home/", "/root/"))
    return _UNIT.format(name=serves, command=command, home="read-only" if in_home else "yes")


def _quoted(word: str) -> str:
    """Return a word as it is written in a unit, where `%` and `$` stand for other words."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word and not set(word) & set(" \t\n\"'\\;"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
