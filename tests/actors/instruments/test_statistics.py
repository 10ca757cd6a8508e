from __future__ import annotations

import ast
import dataclasses
import inspect

import pytest

from onward.actors import NodeStatistics, WorkerStatistics


@pytest.mark.parametrize("kind", [NodeStatistics, WorkerStatistics])
def test_frozen_and_every_field_documented(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    statements = body.body[1:]
    for statement, docstring in zip(statements[::2], statements[1::2], strict=True):
        assert isinstance(statement, ast.AnnAssign)
        assert isinstance(docstring, ast.Expr)
        assert isinstance(docstring.value, ast.Constant)
        assert str(docstring.value.value).endswith(".")
