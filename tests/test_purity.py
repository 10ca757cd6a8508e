"""`protocol/` does no I/O and reads no clock: what it may import is a short list."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PURE = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "cbor2",
        "collections",
        "collections.abc",
        "cryptography.exceptions",
        "cryptography.hazmat.primitives",
        "cryptography.hazmat.primitives.asymmetric.ed25519",
        "cryptography.hazmat.primitives.asymmetric.x25519",
        "cryptography.hazmat.primitives.ciphers",
        "cryptography.hazmat.primitives.ciphers.aead",
        "cryptography.hazmat.primitives.ciphers.algorithms",
        "cryptography.hazmat.primitives.hpke",
        "cryptography.hazmat.primitives.kdf.hkdf",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "io",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "pyroaring",
        "re",
        "struct",
        "tomllib",
        "types",
        "typing",
        "urllib.parse",
        "uuid",
        "zlib",
    }
)
"""Modules of values and algorithms. `io` is here for `BytesIO`, `uuid` for the type `UUID`. Of
`cryptography`, primitives alone; keys are made of bytes that are arguments. HPKE draws its own
ephemeral key, as its interface takes none."""

IMPURE_NAMES = {
    "datetime": frozenset({"now", "today", "utcnow"}),
    "io": frozenset({"open", "open_code", "FileIO"}),
    "uuid": frozenset({"uuid1", "uuid4", "getnode"}),
    "Ed25519PrivateKey": frozenset({"generate"}),
    "X25519PrivateKey": frozenset({"generate"}),
    "ChaCha20Poly1305": frozenset({"generate_key"}),
    "builtins": frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__"}),
}
"""What those modules, and the language itself, have that is not pure."""

FILES = sorted((ROOT / "protocol").rglob("*.py"))


def impurities(program: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything in the program that `protocol/` may not use."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            # `import io` would give all of it; the impure parts are then caught as attributes.
            for alias in node.names:
                if alias.name not in PURE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            for alias in node.names:
                if module not in PURE:
                    yield node.lineno, module
                elif alias.name in IMPURE_NAMES.get(module, ()):
                    yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in IMPURE_NAMES.get(node.value.id, ()):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in IMPURE_NAMES["builtins"]
        ):
            yield node.lineno, node.func.id


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_of_protocol_is_pure(file: Path) -> None:
    assert list(impurities(file.read_text())) == []


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("import socket", ["socket"]),
        ("import struct, time", ["time"]),
        ("from time import monotonic", ["time"]),
        ("from os import path", ["os"]),
        ("def f():\n    import asyncio", ["asyncio"]),
        ("from uuid import UUID, uuid4", ["uuid.uuid4"]),
        ("import uuid\nuuid.uuid4()", ["uuid.uuid4"]),
        ("open('x')", ["open"]),
        ("Ed25519PrivateKey.generate()", ["Ed25519PrivateKey.generate"]),
        ("from io import BytesIO\nfrom . import _x\nBytesIO(b'')", []),
    ],
)
def test_the_check_finds_what_it_should(program: str, found: list[str]) -> None:
    assert [name for _, name in impurities(program)] == found


def test_importing_protocol_loads_no_event_loop() -> None:
    program = (
        "import sys; import onward.protocol.ockam, onward.protocol.rsocket, onward.protocol.broker;"
        "sys.stdout.write(' '.join({'asyncio', 'ssl', 'pykka', 'rsocket'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == ""
