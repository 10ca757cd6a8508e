"""A network of hosts that are network namespaces of this machine, in which frames can be lost.

    with Network.running(["a", "b"]) as network:
        command = [*network["a"].enter, "onward", "broker", ...]
        network.cut("a", "b")  # frames from a to b are lost, and those from b to a are not

All interfaces are inside of the namespaces, and the network of the machine is not touched. The
thread that runs a network is in a namespace of its own meanwhile, the hub, which reaches each host;
so are the programs that it starts. A namespace lives as long as the process that keeps it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, Popen

__all__ = ["Host", "Network", "NetworkMissing"]

CLONE_NEWNET = 0x4000_0000
"""Of `setns`: the descriptor has to be one of a network namespace."""
NETWORK = "10.77.0."
INTERFACE = "near"
NO_STATION = "02:00:00:00:00:01"
"""A hardware address that no host has: what is sent there is lost, and the sender is not told."""


class NetworkMissing(Exception):
    """Namespaces cannot be made on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with one interface.

    Attributes:
        name: Its name.
        address: Its IP address.
        enter: The words before a command that run it there.
    """

    name: str
    address: str
    enter: tuple[str, ...]


class Network:
    """Hosts on one bridge, which is in the hub."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._lost: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @classmethod
    @contextmanager
    def running(cls, names: Sequence[str]) -> Generator[Network]:
        """Make a network, and remove it in the end; this thread is in its hub meanwhile.

        Args:
            names: The names of the hosts, at most 200.

        Raises:
            NetworkMissing: This machine, or user, makes no namespaces.
        """
        with ExitStack() as stack:
            hub = stack.enter_context(_namespace())
            _ip(hub, "link add name bridge type bridge")
            _ip(hub, f"address add {NETWORK}1/24 dev bridge")
            _ip(hub, "link set bridge up")
            _ip(hub, "link set lo up")
            hosts: list[Host] = []
            for number, name in enumerate(names, start=11):
                pid = stack.enter_context(_namespace())
                host = Host(name, f"{NETWORK}{number}", _entering(pid))
                _ip(hub, f"link add name v{number} type veth peer name {INTERFACE} netns {pid}")
                _ip(hub, f"link set v{number} master bridge up")
                _ip(pid, f"address add {host.address}/24 dev {INTERFACE}")
                _ip(pid, f"link set {INTERFACE} up")
                _ip(pid, "link set lo up")
                hosts.append(host)
            stack.enter_context(_inside(hub))
            yield cls(hosts)

    def cut(self, sender: str, receiver: str) -> None:
        """Lose what one host sends to another from now on."""
        to = f"{self[receiver].address} lladdr {NO_STATION} nud permanent dev {INTERFACE}"
        _run([*self[sender].enter, "ip", "neighbour", "replace", *to.split()])
        self._lost.add((sender, receiver))

    def part(self, *sides: Iterable[str]) -> None:
        """Lose what hosts of one side send to those of the others."""
        for senders, receivers in itertools.permutations(map(tuple, sides), 2):
            for pair in itertools.product(senders, receivers):
                self.cut(*pair)

    def heal(self) -> None:
        """Lose nothing any more."""
        for sender, receiver in self._lost:
            to = f"{self[receiver].address} dev {INTERFACE}"
            _run([*self[sender].enter, "ip", "neighbour", "delete", *to.split()])
        self._lost.clear()


@contextmanager
def _namespace() -> Generator[int]:
    """Make a namespace; yield the id of the process that keeps it, which ends with this one."""
    try:
        keeper = Popen(["unshare", "--net", "cat"], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        raise NetworkMissing(f"unshare: {error}") from None
    with keeper:
        assert keeper.stdin
        assert keeper.stdout
        assert keeper.stderr
        keeper.stdin.write(b"there\n")
        keeper.stdin.flush()
        if not keeper.stdout.readline():
            raise NetworkMissing(keeper.stderr.read().decode().strip())
        yield keeper.pid
        keeper.stdin.close()


def _entering(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")


def _ip(pid: int, words: str) -> None:
    _run([*_entering(pid), "ip", *words.split()])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, stdin=DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NetworkMissing(str(error)) from None
    if done.returncode:
        raise NetworkMissing(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def _inside(pid: int) -> Generator[None]:
    """Take this thread into a namespace, and back in the end."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        inner = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            _enter(inner)
        finally:
            os.close(inner)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def _enter(descriptor: int) -> None:
    # os.setns is there from Python 3.12 on.
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, CLONE_NEWNET):
        raise NetworkMissing(f"setns: {os.strerror(ctypes.get_errno())}")
