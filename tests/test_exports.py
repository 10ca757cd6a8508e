"""The public surface: every package exports names of its modules, once, and documents them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from onward.protocol import (
    DeliveryError,
    InDoubt,
    NotDelivered,
    OnwardError,
    ProtocolError,
    RouteError,
    WireError,
)
from tests.support.compiled import documented, source_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
    "packages"
]
INTERNAL = {
    *(
        f"onward.actors.{each}"
        for each in ("diagnostics", "instruments", "pykka", "routing", "runtime")
    ),
    *("onward.actors.broker.local", "onward.actors.broker.table"),
    *("onward.actors.eventlog.recording", "onward.actors.eventlog.storage"),
    *(
        f"onward.actors.identity.{each}"
        for each in ("directory", "domains", "links", "relays", "topics")
    ),
    *("onward.transports.node", "onward.transports.streams"),
}
"""Packages that export nothing; what is public in their modules, the package above exports."""

ROOTS = {DeliveryError, InDoubt, NotDelivered, OnwardError, ProtocolError, RouteError, WireError}
"""Errors that group others and do not say what happened."""


def kind_then_name(name: str) -> tuple[int, str]:
    """Order as the linter does: CONSTANTS, then Classes, then functions."""
    if name.isupper():
        return 0, name
    return (1, name) if name[0].isupper() else (2, name)


def underscored_modules(package: ModuleType) -> list[ModuleType]:
    """Return the modules of a package, and of the internal packages in it."""
    folder = Path(str(package.__file__)).parent
    found: list[ModuleType] = []
    for each in pkgutil.iter_modules([str(folder)]):
        name = f"{package.__name__}.{each.name}"
        if name in INTERNAL:
            found += underscored_modules(importlib.import_module(name))
        elif each.name.startswith("_") and each.name != "__main__" and not each.ispkg:
            found.append(importlib.import_module(name))
    return found


def listed(module: ModuleType) -> list[str]:
    """What a module offers; one without `__all__` is for its own package only."""
    return list(getattr(module, "__all__", ()))


# `onward` itself has the version, and no modules of its own.
@pytest.fixture(params=[name for name in PACKAGES if name not in INTERNAL | {"onward"}])
def package(request: pytest.FixtureRequest) -> ModuleType:
    name: str = request.param
    return importlib.import_module(name)


def test_all_is_sorted_unique_and_resolves(package: ModuleType) -> None:
    names: list[str] = package.__all__
    assert names == sorted(set(names), key=kind_then_name)
    assert [name for name in names if not hasattr(package, name)] == []


def test_every_public_name_comes_from_one_module(package: ModuleType) -> None:
    # A module may list more than its package: what the modules beside it use.
    exported = Counter[str]()
    for module in underscored_modules(package):
        exported.update(listed(module))
    assert [name for name in package.__all__ if exported[name] != 1] == []


def test_every_error_is_public_or_a_kind_of_one_that_is(package: ModuleType) -> None:
    # Whoever can meet an error can name it in an except clause.
    hidden = [
        name
        for module in underscored_modules(package)
        for name in listed(module)
        if name not in package.__all__ and _is_error(thing := getattr(module, name))
        if thing.__base__ in ROOTS
    ]
    assert hidden == []


def test_a_module_lists_only_what_it_has(package: ModuleType) -> None:
    for module in underscored_modules(package):
        missing = [name for name in listed(module) if not hasattr(module, name)]
        assert missing == [], module.__name__


@documented
def test_every_public_name_is_documented(package: ModuleType) -> None:
    bare = [name for name in package.__all__ if _is_bare(getattr(package, name))]
    for name in package.__all__:
        thing = getattr(package, name)
        if inspect.isclass(thing):
            bare += [f"{name}.{member}" for member in _bare_members(thing)]
    assert bare == []


def test_every_public_constant_and_alias_is_documented(package: ModuleType) -> None:
    # The reference shows none without a string below its assignment.
    texts = dict[str, str]()
    for module in underscored_modules(package):
        texts.update(_texts_below(source_of(module)))
    values = [
        name
        for name in package.__all__
        if not (inspect.isclass(thing := getattr(package, name)) or inspect.isroutine(thing))
    ]
    assert [name for name in values if name not in texts] == []


@pytest.mark.parametrize("name", sorted(INTERNAL))
def test_an_internal_package_exports_nothing(name: str) -> None:
    package = importlib.import_module(name)
    assert not hasattr(package, "__all__")
    assert len(inspect.getdoc(package) or "") > 30


def test_every_package_says_what_it_is(package: ModuleType) -> None:
    assert len(inspect.getdoc(package) or "") > 30


def _texts_below(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that a module assigns, with the string that stands below it."""
    for statement, below in pairwise(ast.parse(file.read_text()).body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, text
            case _:
                pass


def _is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, OnwardError)


def _is_bare(thing: object) -> bool:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return False
    # A dataclass without a docstring is given its signature as one.
    text = inspect.getdoc(thing) or ""
    return not text or text.startswith(f"{getattr(thing, '__name__', '')}(")


def _bare_members(thing: type) -> list[str]:
    return [
        name
        for name, member in vars(thing).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property | classmethod))
        and not inspect.getdoc(getattr(thing, name))
    ]
