"""Evaluate conditions over the columns of a table that a user types. A condition cannot call functions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, nearest, suggestion

if TYPE_CHECKING:
    import pandas as pd

MAX_CONDITION_LENGTH = 1000
"""The largest number of characters of a condition."""

_RULE = "A condition has columns, numbers and texts, with + - * / // % **, < <= == != >= >, in [...], and, or, not"
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

# The kinds of values, as messages name them.
_NUMBER = "a number"
_TEXT = "a text"
_TRUTH = "true or false"
_DTYPES: dict[str, Any] = {_NUMBER: "Float64", _TEXT: "string", _TRUTH: "boolean"}


def rows_that_pass(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return the rows of a table for which a condition is true.

    Numbers are converted to floats before they are used. A comparison with a missing value is neither true nor false,
    so that the row does not pass.

    Args:
        frame: the table. Only its columns are known to the condition.
        condition: such as `ce < 4 and dtype in ["float32", "bfloat16"]`.

    Raises:
        BadInput: the condition contains anything but columns, constants, arithmetic, comparisons, `in [...]`, `and`,
            `or` and `not`; it compares texts with numbers; or it cannot be evaluated.

    """
    import pandas as pd

    mask = pd.Series(_Evaluation(frame, condition).truth(), frame.index, dtype="boolean")
    passing: pd.DataFrame = frame[mask.fillna(False).astype(bool)]
    return passing


class _Evaluation:
    """Checks and evaluates one condition over one table."""

    def __init__(self, frame: pd.DataFrame, condition: str) -> None:
        self.frame = frame
        self.condition = condition
        self.names_a_column = False  # whether a part that was evaluated already names a column

    def truth(self) -> Any:
        """Return whether each row passes, or one value for all; missing if a compared value is missing.

        Raises BadInput if the condition is wrong.
        """
        if len(self.condition) > MAX_CONDITION_LENGTH:
            raise BadInput(
                f"where={self.condition[:40]}...: a condition has at most {MAX_CONDITION_LENGTH:,} characters; "
                f"this one has {len(self.condition):,}"
            )
        try:
            tree = ast.parse(self.condition.strip(), mode="eval")
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:  # such as 5,000 digits
            raise BadInput(f"where={self.condition}: this is not a condition. {_RULE}") from error
        try:
            kind, value = self._evaluate(tree.body)
        except BadInput:
            raise
        except Exception as error:  # such as OverflowError for 9**9**9
            raise BadInput(f"where={self.condition}: it cannot be computed ({' '.join(str(error).split())})") from error
        if kind != _TRUTH:
            raise BadInput(f"where={self.condition}: this is {kind}, not a condition. Compare it, such as ce < 4")
        if not self.names_a_column:
            raise BadInput(f"where={self.condition}: the condition names no column. {self._list_of_columns()}")
        return value

    def _evaluate(self, node: ast.expr) -> tuple[str, Any]:
        """Return the kind and the value of a node: a column, or a constant."""
        match node:
            case ast.Constant(value=bool() as constant):
                return _TRUTH, constant
            case ast.Constant(value=int() | float() as constant):
                return _NUMBER, float(constant)  # products of int64 would overflow silently, and 9**9**9 take minutes
            case ast.Constant(value=str() as constant):
                return _TEXT, constant
            case ast.Name():
                return self._column(node.id)
            case ast.UnaryOp(op=ast.Not()):
                return _TRUTH, self._values(_TRUTH, [node.operand])[0] ^ True
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                (value,) = self._values(_NUMBER, [node.operand])
                return _NUMBER, -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _NUMBER, _ARITHMETIC[type(node.op)](*self._values(_NUMBER, [node.left, node.right]))
            case ast.BoolOp():
                join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
                return _TRUTH, reduce(join, self._values(_TRUTH, node.values))
            case ast.Compare():
                return _TRUTH, self._compare(node)
        raise self._not_allowed(node)

    def _values(self, kind: str, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return the values of nodes that must be of one kind. Raises BadInput if a node is of another one."""
        values = []
        for node in nodes:
            actual, value = self._evaluate(node)
            if actual != kind:
                raise BadInput(
                    f"where={self.condition}: {ast.unparse(node)} is {actual}; {kind} is needed in its place"
                )
            values.append(value)
        return values

    def _compare(self, node: ast.Compare) -> Any:
        kind, left = self._evaluate(node.left)
        results = []
        for comparison, right_node in zip(node.ops, node.comparators, strict=True):
            match comparison, right_node:
                case ast.In() | ast.NotIn(), ast.List() | ast.Tuple() if right_node is node.comparators[-1]:
                    equals = [left == element for element in self._values(kind, right_node.elts)]
                    is_in = reduce(operator.or_, equals, False)
                    results.append(is_in if isinstance(comparison, ast.In) else is_in ^ True)
                case _ if type(comparison) in _COMPARISONS:
                    (right,) = self._values(kind, [right_node])
                    results.append(_COMPARISONS[type(comparison)](left, right))
                    left = right
                case _:
                    raise self._not_allowed(node)
        return reduce(operator.and_, results)

    def _column(self, name: str) -> tuple[str, Any]:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        if name not in self.frame.columns:
            suggested = suggestion(nearest(name, map(str, self.frame.columns)))
            raise BadInput(
                f"where={self.condition}: the table has no column {name}.{suggested} {self._list_of_columns()}"
            )
        self.names_a_column = True
        kind = _NUMBER if is_numeric_dtype(self.frame[name]) else _TEXT
        if is_bool_dtype(self.frame[name]):
            kind = _TRUTH
        return kind, self.frame[name].astype(_DTYPES[kind])

    def _list_of_columns(self) -> str:
        return f"Columns: {', '.join(map(str, self.frame.columns))}"

    def _not_allowed(self, node: ast.AST) -> BadInput:
        return BadInput(f"where={self.condition}: {ast.unparse(node)} is not allowed. {_RULE}")
