"""Which classes inherit from which, by the source of their modules."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ClassTable", "Inherits"]

MOST_NAMES: Final = 20
"""The modules by which a name may be imported one after the other."""

SUPPORTED: Final = frozenset(("dataclass", "final", "mypyc_attr", "trait"))
"""Decorators with which a class is one of mypyc's own."""

OPEN: Final = frozenset(
    ("Enum", "Flag", "IntEnum", "IntFlag", "NamedTuple", "StrEnum", "TypedDict")
)
"""Bases in the standard library by which a class is none of mypyc's own."""

LEFT_OPEN: Final = (("allow_interpreted_subclasses", "True"), ("native_class", "False"))
"""Options of `mypyc_attr` by which a class may have interpreted subclasses."""

BUILTIN: Final = frozenset(("dict",))
"""Built-in bases of which a compiled class can have subclasses, beside exceptions."""

_BASES: Final = re.compile(r"^[ \t]*class \w+\((.*?)\)\s*:", re.MULTILINE | re.DOTALL)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Inherits:
    """An interpreted class that inherits from a compiled one.

    Attributes:
        module: The module of the class.
        line: The line of it.
        name: Its name.
        base: The compiled class, with its module.
    """

    module: str
    line: int
    name: str
    base: str


class ClassTable:
    """The classes of modules.

    Args:
        modules: The source of each module, by its name; that of a package by its name with
            `.__init__`.
        compiled: The names of those that mypyc compiles.
    """

    def __init__(self, modules: dict[str, str], compiled: Iterable[str]) -> None:
        self._texts = modules
        self._compiled = frozenset(compiled)
        self._read: dict[str, _Module] = {}

    def _module(self, name: str) -> _Module:
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = _Module(name, self._texts[name])
        return found

    @classmethod
    def of_files(cls, root: Path, folders: Iterable[str], compiled: Iterable[str]) -> ClassTable:
        """Return the table of the packages in folders of a checkout."""
        modules: dict[str, str] = {}
        for folder in folders:
            for file in sorted((root / folder).rglob("*.py")):
                inside = file.relative_to(root).with_suffix("").parts
                name = ".".join(("onward", *inside[inside[0] == "package" :]))
                modules[name] = file.read_text()
        return cls(modules, compiled)

    def inheritances(self) -> Iterator[Inherits]:
        """Yield the interpreted classes that inherit from compiled ones: a use of them raises."""
        # Most modules need not be read: no class in them has a base of the name of such a class.
        named = {
            name
            for module in self._compiled
            for name in self._module(module).classes
            if self._closed(module, name)
        }
        renamed = re.compile(rf"\b(?:{'|'.join(sorted(named)) or '$.'}) as (\w+)")
        named.update(name for text in self._texts.values() for name in renamed.findall(text))
        for module, text in self._texts.items():
            if module not in self._compiled and any(
                named.intersection(_WORD.findall(bases)) for bases in _BASES.findall(text)
            ):
                yield from self._in_module(module)

    def _in_module(self, module: str) -> Iterator[Inherits]:
        for node in self._module(module).nodes:
            for base in node.bases:
                found = self._resolve(module, base)
                if found is not None and self._closed(*found):
                    yield Inherits(module, node.lineno, node.name, ".".join(found))

    def _resolve(self, module: str, base: ast.expr) -> tuple[str, str] | None:
        """Return the module and the name of a class; `None` for one of no module that is known."""
        if isinstance(base, ast.Subscript):
            base = base.value
        words = ast.unparse(base).split(".")
        for _ in range(MOST_NAMES):
            if len(words) == 1 and words[0] in self._module(module).classes:
                return module, words[0]
            imported = self._module(module).imports.get(words[0])
            if imported is None:
                return None
            # It is a name of a module, or a module.
            words = [*imported.split("."), *words[1:]]
            for length in range(len(words) - 1, 0, -1):
                known = self._known(".".join(words[:length]))
                if known is not None:
                    module, words = known, words[length:]
                    break
            else:
                return None
        return None

    def _known(self, name: str) -> str | None:
        """Return the name by which a module or a package is in the table."""
        return next((each for each in (name, f"{name}.__init__") if each in self._texts), None)

    def _closed(self, module: str, name: str) -> bool:
        """Whether a class can have no interpreted subclass, as mypyc decides on it."""
        if module not in self._compiled:
            return False
        node = self._module(module).classes[name]
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called).rpartition(".")[2] not in SUPPORTED:
                return False
            if isinstance(decorator, ast.Call) and any(
                each.arg == option and ast.unparse(each.value) == wanted
                for each in decorator.keywords
                for option, wanted in LEFT_OPEN
            ):
                return False
        return not any(self._opens(module, base) for base in node.bases)

    def _opens(self, module: str, base: ast.expr) -> bool:
        """Whether a base leaves a compiled class open, or one of its own bases."""
        found = self._resolve(module, base)
        if found is not None:
            node = self._module(found[0]).classes[found[1]]
            return any(self._opens(found[0], each) for each in node.bases)
        plain = base.value if isinstance(base, ast.Subscript) else base
        name = ast.unparse(plain).rpartition(".")[2]
        known: object = getattr(builtins, name, None)
        exception = isinstance(known, type) and issubclass(known, BaseException)
        return exception or name in BUILTIN or name in OPEN


class _Module:
    """The classes of a module, and the names that it imports, each with what it is the name of."""

    def __init__(self, name: str, text: str) -> None:
        self.nodes: list[ast.ClassDef] = []
        self.classes: dict[str, ast.ClassDef] = {}
        self.imports: dict[str, str] = {}
        package = name.split(".")[:-1]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                self.nodes.append(node)
                self.classes.setdefault(node.name, node)
            elif isinstance(node, ast.Import):
                for each in node.names:
                    top = each.name.partition(".")[0]
                    self.imports[each.asname or top] = each.name if each.asname else top
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                parts = [*above, *(node.module.split(".") if node.module else ())]
                for each in node.names:
                    self.imports[each.asname or each.name] = ".".join((*parts, each.name))
