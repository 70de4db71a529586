"""Evaluate conditions over the columns of a table that a user types. A condition cannot call functions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, nearest, shortened

if TYPE_CHECKING:
    import pandas as pd

MAX_CONDITION_LENGTH = 1000
"""The largest number of characters of a condition."""

_RULE = "A condition has columns, numbers and texts, with + - * / // % **, < <= == != >= >, in [...], and, or, not"
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

_NUMBER = "a number"
_TEXT = "a text"
_TRUTH = "true or false"


def rows_that_pass(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return the rows of a table for which a condition is true.

    The syntax tree of the condition is checked first. pandas then evaluates what was checked.

    Args:
        frame: the table. Only its columns are known to the condition.
        condition: such as `ce < 4 and dtype in ["float32", "bfloat16"]`.

    Raises:
        BadInput: the condition holds anything but comparisons, arithmetic and names of columns, it compares texts with
            numbers, or it cannot be evaluated.

    """
    tree = _Check(frame, condition).tree()
    try:
        mask: Any = frame.eval(ast.unparse(tree), engine="python")
    except Exception as error:  # pandas' evaluation raises many types, such as OverflowError for 9.0**9.0**9.0
        raise BadInput(f"where={condition}: it cannot be computed ({' '.join(str(error).split())})") from error
    passed: pd.DataFrame = frame[mask.fillna(False).astype(bool)]
    return passed


class _Check:
    """The check of one condition over one table."""

    def __init__(self, frame: pd.DataFrame, condition: str) -> None:
        self.frame = frame
        self.condition = condition
        self.names_a_column = False

    def tree(self) -> ast.Expression:
        """Parse the condition and check its syntax tree. Raises BadInput if a part of it is not allowed."""
        if len(self.condition) > MAX_CONDITION_LENGTH:
            raise BadInput(
                f"where={self.condition[:40]}...: a condition has at most {MAX_CONDITION_LENGTH:,} characters; "
                f"this one has {len(self.condition):,}"
            )
        try:
            tree = ast.parse(self.condition.strip(), mode="eval")
            kind = self._kind(tree.body)
            _PowersOfFloats().visit(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # a number of 5,000 digits, 500 signs
            raise BadInput(f"where={self.condition}: this is not a condition. {_RULE}") from error
        if kind != _TRUTH:
            raise BadInput(f"where={self.condition}: this is {kind}, not a condition. Compare it, such as ce < 4")
        if not self.names_a_column:
            raise BadInput(f"where={self.condition}: the condition names no column. {self._columns()}")
        return tree

    def _kind(self, node: ast.expr) -> str:
        """Check a node and all nodes below it, and return the kind of its value."""
        match node:
            case ast.Constant(value=bool()):
                return _TRUTH
            case ast.Constant(value=int() | float()):
                return _NUMBER
            case ast.Constant(value=str()):
                return _TEXT
            case ast.Name():
                return self._kind_of_column(node.id)
            case ast.UnaryOp(op=ast.Not()):
                return self._all(_TRUTH, [node.operand])
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                return self._all(_NUMBER, [node.operand])
            case ast.BinOp() if isinstance(node.op, _ARITHMETIC):
                return self._all(_NUMBER, [node.left, node.right])
            case ast.BoolOp():
                return self._all(_TRUTH, node.values)
            case ast.Compare():
                return self._comparison(node)
        raise self._refusal(node)

    def _all(self, kind: str, nodes: list[ast.expr]) -> str:
        """Check that all nodes are of one kind, and return the kind."""
        for node in nodes:
            actual = self._kind(node)
            if actual != kind:
                raise BadInput(
                    f"where={self.condition}: {ast.unparse(node)} is {actual}; {kind} is needed in its place"
                )
        return kind

    def _comparison(self, node: ast.Compare) -> str:
        left = self._kind(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple):
                self._all(left, right.elts)
            elif isinstance(operator, _COMPARISONS):
                self._all(left, [right])
            else:
                raise self._refusal(node)
        return _TRUTH

    def _kind_of_column(self, name: str) -> str:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        if name not in self.frame.columns:
            near = nearest(name, map(str, self.frame.columns))
            suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
            raise BadInput(f"where={self.condition}: the table has no column {name}.{suggestion} {self._columns()}")
        self.names_a_column = True
        if is_bool_dtype(self.frame[name]):
            return _TRUTH
        return _NUMBER if is_numeric_dtype(self.frame[name]) else _TEXT

    def _columns(self) -> str:
        columns = list(map(str, self.frame.columns))
        return f"Columns: {shortened(columns, limit=len(columns))}"

    def _refusal(self, node: ast.AST) -> BadInput:
        return BadInput(f"where={self.condition}: {ast.unparse(node)} is not allowed. {_RULE}")


class _PowersOfFloats(ast.NodeTransformer):
    """Converts whole numbers in powers to floats. 9.0**9.0**9.0 fails at once, but 9**9**9 would take minutes."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        if isinstance(node.op, ast.Pow):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, int):
                    inner.value = float(inner.value)
        self.generic_visit(node)
        return node
