"""Evaluate conditions over the columns of a table that a user types. A condition cannot call functions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, nearest, suggestion

if TYPE_CHECKING:
    import pandas as pd

MAX_CONDITION_LENGTH = 1000
"""The largest number of characters of a condition."""

_RULE = "A condition has columns, numbers and texts, with + - * / // % **, < <= == != >= >, in [...], and, or, not"
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

# The kinds of values, as messages name them.
_NUMBER = "a number"
_TEXT = "a text"
_TRUTH = "true or false"


def rows_that_pass(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return the rows of a table for which a condition is true.

    The syntax tree of the condition is checked before pandas evaluates it. Numbers are converted to floats before they
    are used.

    Args:
        frame: the table. Only its columns are known to the condition.
        condition: such as `ce < 4 and dtype in ["float32", "bfloat16"]`.

    Raises:
        BadInput: the condition contains anything but columns, constants, arithmetic, comparisons, `in [...]`, `and`,
            `or` and `not`; it compares texts with numbers; or it cannot be evaluated.

    """
    tree = _ConditionParser(frame, condition).parse()
    numbers = frame.select_dtypes("number").columns
    try:
        mask: Any = frame.astype(dict.fromkeys(numbers, "Float64")).eval(ast.unparse(tree), engine="python")
    except Exception as error:  # pandas' evaluation raises many types, such as OverflowError for 9.0**9.0**9.0
        raise BadInput(f"where={condition}: it cannot be computed ({' '.join(str(error).split())})") from error
    passing: pd.DataFrame = frame[mask.fillna(False).astype(bool)]
    return passing


class _ConditionParser:
    """Parses and checks one condition over one table."""

    def __init__(self, frame: pd.DataFrame, condition: str) -> None:
        self.frame = frame
        self.condition = condition
        self.names_a_column = False  # whether a part that was checked already names a column

    def parse(self) -> ast.Expression:
        """Return the checked syntax tree of the condition. Raises BadInput if a part of it is not allowed."""
        if len(self.condition) > MAX_CONDITION_LENGTH:
            raise BadInput(
                f"where={self.condition[:40]}...: a condition has at most {MAX_CONDITION_LENGTH:,} characters; "
                f"this one has {len(self.condition):,}"
            )
        try:
            tree = ast.parse(self.condition.strip(), mode="eval")
            kind = self._kind(tree.body)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:  # such as 5,000 digits
            raise BadInput(f"where={self.condition}: this is not a condition. {_RULE}") from error
        if kind != _TRUTH:
            raise BadInput(f"where={self.condition}: this is {kind}, not a condition. Compare it, such as ce < 4")
        if not self.names_a_column:
            raise BadInput(f"where={self.condition}: the condition names no column. {self._list_of_columns()}")
        return tree

    def _kind(self, node: ast.expr) -> str:
        """Check a node and all nodes below it, and return the kind of its value."""
        match node:
            case ast.Constant(value=bool()):
                return _TRUTH
            case ast.Constant(value=int() | float() as number):
                node.value = float(number)  # products of int64 would overflow silently, and 9**9**9 take minutes
                return _NUMBER
            case ast.Constant(value=str()):
                return _TEXT
            case ast.Name():
                return self._kind_of_column(node.id)
            case ast.UnaryOp(op=ast.Not()):
                return self._require_kind(_TRUTH, [node.operand])
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                return self._require_kind(_NUMBER, [node.operand])
            case ast.BinOp() if isinstance(node.op, _ARITHMETIC):
                return self._require_kind(_NUMBER, [node.left, node.right])
            case ast.BoolOp():
                return self._require_kind(_TRUTH, node.values)
            case ast.Compare():
                return self._kind_of_comparison(node)
        raise self._not_allowed(node)

    def _require_kind(self, kind: str, nodes: list[ast.expr]) -> str:
        """Check that all nodes have a kind, and return the kind. Raises BadInput if a node has another one."""
        for node in nodes:
            actual = self._kind(node)
            if actual != kind:
                raise BadInput(
                    f"where={self.condition}: {ast.unparse(node)} is {actual}; {kind} is needed in its place"
                )
        return kind

    def _kind_of_comparison(self, node: ast.Compare) -> str:
        kind = self._kind(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple):
                self._require_kind(kind, right.elts)
            elif isinstance(operator, _COMPARISONS):
                self._require_kind(kind, [right])
            else:
                raise self._not_allowed(node)
        return _TRUTH

    def _kind_of_column(self, name: str) -> str:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        if name not in self.frame.columns:
            suggested = suggestion(nearest(name, map(str, self.frame.columns)))
            raise BadInput(
                f"where={self.condition}: the table has no column {name}.{suggested} {self._list_of_columns()}"
            )
        self.names_a_column = True
        if is_bool_dtype(self.frame[name]):
            return _TRUTH
        return _NUMBER if is_numeric_dtype(self.frame[name]) else _TEXT

    def _list_of_columns(self) -> str:
        return f"Columns: {', '.join(map(str, self.frame.columns))}"

    def _not_allowed(self, node: ast.AST) -> BadInput:
        return BadInput(f"where={self.condition}: {ast.unparse(node)} is not allowed. {_RULE}")
