"""The table "who may import whom" of docs/architecture.md, held against the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("protocol", "actors", "transports", "pipeline", "cli")


def layers() -> dict[str, frozenset[str]]:
    """Read from the architecture page what each folder may import of the others."""
    allowed: dict[str, frozenset[str]] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if row := re.fullmatch(r"\| `(\w+)/` \| `onward\.\1` \|.*\| ([^|]+) \|", line):
            folder, cell = row.groups()
            everything = frozenset(FOLDERS) - {folder} if cell == "all" else frozenset[str]()
            allowed[folder] = everything | frozenset(re.findall(r"`(\w+)`", cell))
    return allowed


CORE, BASE = "core", "base"
"""What the table inside `actors/` calls the modules beside its folders."""

BASES = {"_coroutines", "_errors", "_log"}
"""The modules of the base."""


def inside() -> dict[str, frozenset[str]]:
    """Read from the architecture page what each folder of `actors/` may import of the others."""
    allowed: dict[str, frozenset[str]] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        row = re.fullmatch(
            r"\| (?:`(\w+)/`|the core) \| [^|]+ \| the (core|base)((?:, `\w+`)*) \|", line
        )
        if row:
            folder, first, others = row.groups()
            allowed[folder or CORE] = frozenset({BASE, first, *re.findall(r"`(\w+)`", others)})
    return allowed


def part_of(module: str) -> str:
    """Return the folder of `actors/` that a module is in, or `BASE` or `CORE`."""
    parts = module.split(".")[2:]
    if parts and (ROOT / "actors" / parts[0]).is_dir():
        return parts[0]
    return BASE if parts and parts[0] in BASES else CORE


ROUTER = "the router"
"""What the table inside `actors/identity/` calls the modules that have no row of their own."""


def inside_identity() -> dict[str, frozenset[str]]:
    """Read from the architecture page what may import what inside `actors/identity/`."""
    _, found = (ROOT / "docs" / "architecture.md").read_text().split("\nInside `actors/identity/`")
    allowed: dict[str, frozenset[str]] = {}
    for line in found.split("\n\n")[1].splitlines()[2:]:
        name, _, others = line.strip("| ").split(" | ")
        router = {ROUTER} if ROUTER in others else set[str]()
        allowed[name.strip("`/")] = frozenset(router | set(re.findall(r"`(\w+)`", others)))
    return allowed


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
"""The fields of a node that hold statements, or handlers and cases, which hold statements."""


@cache
def import_statements(program: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the imports of a program, without a look into expressions: they hold none."""
    found: list[ast.Import | ast.ImportFrom] = []
    inside: list[ast.AST] = [ast.parse(program)]
    for node in inside:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for field in BODIES:
            nodes = getattr(node, field, None)
            # The body of a lambda, and of a conditional expression, is no list.
            if isinstance(nodes, list):
                inside += nodes
    return tuple(found)


def imports(program: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and absolute module name of each import, wherever in the text it stands."""
    for node in import_statements(program):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = ".".join((*base, *(node.module or "").split("."))).strip(".")
            if target == "onward":
                # `from .. import protocol`: the names are the folders.
                for alias in node.names:
                    yield node.lineno, f"onward.{alias.name}"
            else:
                yield node.lineno, target


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    return imports(file.read_text(), ("onward", *file.relative_to(ROOT).parent.parts))


def absolute_imports_of(file: Path) -> Iterator[tuple[int, str]]:
    for node in import_statements(file.read_text()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif not node.level:
            yield node.lineno, node.module or ""


def test_the_table_names_every_folder() -> None:
    assert set(layers()) == set(FOLDERS)
    assert layers()["protocol"] == frozenset()
    assert layers()["actors"] == {"protocol"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_the_table_allows(folder: str) -> None:
    allowed = layers()[folder] | {folder}
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sources(folder)
        for line, module in imports_of(file)
        if module.split(".")[0] == "onward" and module.split(".")[1] not in allowed
    ]
    assert wrong == []


def test_the_table_inside_actors_names_every_folder() -> None:
    folders = {each.name for each in (ROOT / "actors").iterdir() if (each / "__init__.py").exists()}
    assert set(inside()) == folders | {CORE}


def test_the_table_inside_actors_has_no_circle() -> None:
    left = {BASE: frozenset[str](), **inside()}
    while free := {part for part, others in left.items() if not others & set(left) - {part}}:
        for part in free:
            del left[part]
    assert left == {}


def test_folders_of_actors_import_only_what_the_table_allows() -> None:
    # Imports for types count: they make a circle as others do.
    allowed = {BASE: frozenset[str](), **inside()}
    found = {
        (part_of(".".join(("onward", *file.relative_to(ROOT).with_suffix("").parts))), to)
        for file in sources("actors")
        if file != ROOT / "actors" / "__init__.py"
        for _, module in imports_of(file)
        if module.startswith("onward.actors") and (to := part_of(module))
    }
    wrong = {(part, to) for part, to in found if part != to and to not in allowed[part]}
    assert wrong == set()


def test_the_table_inside_identity_names_every_folder() -> None:
    folders = {each.parent.name for each in (ROOT / "actors" / "identity").glob("*/__init__.py")}
    modules = {each for each in inside_identity() if each.startswith("_")}
    assert set(inside_identity()) == folders | modules | {ROUTER}
    assert all((ROOT / "actors" / "identity" / f"{each}.py").exists() for each in modules)


def test_folders_of_identity_import_only_what_the_table_allows() -> None:
    # Those for types count here as well; circles with the router there are by design.
    package, allowed = "onward.actors.identity", inside_identity()
    found = {
        (name if name in allowed else ROUTER, to if to in allowed else ROUTER)
        for file in sources("actors/identity")
        if file != ROOT / "actors" / "identity" / "__init__.py"
        for name in [file.relative_to(ROOT / "actors" / "identity").with_suffix("").parts[0]]
        for _, module in imports_of(file)
        if module.startswith(f"{package}.")
        for to in [module.split(".")[3]]
    }
    wrong = {(part, to) for part, to in found if part != to and to not in allowed[part]}
    assert wrong == set()
    assert {(part, to) for part, others in allowed.items() for to in others} <= found


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_of_ours_inside_the_folders_are_relative(folder: str) -> None:
    # An absolute one would give type checkers two identities of one class.
    ours = {"onward", *FOLDERS}
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sources(folder)
        for line, module in absolute_imports_of(file)
        if module.split(".")[0] in ours
    ]
    assert wrong == []


WRONG = re.compile(rf"(?:\b(?:import|from)|,)[\s\\]*(?:{'|'.join(FOLDERS)})\b")
"""What a file has to hold to import one of the folders; to parse all files takes seconds."""


@pytest.mark.parametrize("folder", ["tests", "examples", "benchmarks", "fuzz", "docs", "tools"])
def test_everyone_else_imports_through_onward(folder: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sources(folder)
        if "node_modules" not in file.parts and WRONG.search(file.read_text())
        for line, module in absolute_imports_of(file)
        if module.split(".")[0] in FOLDERS
    ]
    assert wrong == []


def test_examples_use_public_modules_only() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sources("examples")
        for line, module in absolute_imports_of(file)
        if module.startswith("onward.") and any(part[0] == "_" for part in module.split("."))
    ]
    assert wrong == []


def test_the_reader_of_imports_sees_every_form() -> None:
    # The tests above are worth what this is worth.
    program = (
        "import onward.cli, os.path\n"
        "from onward import transports\n"
        "from . import a\n"
        "from .b import c\n"
        "from ..d import e\n"
        "from ...protocol import f\n"
        "from ...transports.rsocket import g\n"
        "from ... import cli\n"
        "def h():\n    from ...cli import main\n"
    )
    assert list(imports(program, ("onward", "actors", "broker"))) == [
        (1, "onward.cli"),
        (1, "os.path"),
        (2, "onward.transports"),
        (3, "onward.actors.broker"),
        (4, "onward.actors.broker.b"),
        (5, "onward.actors.d"),
        (6, "onward.protocol"),
        (7, "onward.transports.rsocket"),
        (8, "onward.cli"),
        (10, "onward.cli"),
    ]
