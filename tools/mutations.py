"""Small faults in a source file, each a replacement of a few bytes.

A fault edits the text instead of printing a changed syntax tree, so its diff shows nothing else.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

LESS_OFTEN = 0.25
"""Weight of guards and defaults, which are many and reveal little about the tests."""

SWAPS = {
    **{"+": "-", "-": "+", "*": "/", "/": "*", "//": "/", "%": "//", "**": "*"},
    **{"&": "|", "|": "&", "<<": ">>", ">>": "<<"},
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"is": "is not", "is not": "is", "in": "not in", "not in": "in", "and": "or", "or": "and"},
}
OPERATOR = re.compile(rb"#.*|(is\s+not|not\s+in|is|in|and|or|\*\*|//|<<|>>|[<>=!]=|[-+*/%&|<>])")

NAMES = {"min": "max", "any": "all"}
METHODS = NAMES | {
    **{"amin": "amax", "argmin": "argmax", "minimum": "maximum", "sum": "mean", "floor": "ceil"},
    **{"double": "float", "float64": "float32"},
}
ONE_WAY = {"double", "float64"}
DROPPED = {"sqrt", "square", "abs", "exp", "log", "detach", "clone", "clamp", "masked_fill"}
"""Calls that can be replaced by their input."""
OPTIONAL = {"dtype", "keepdim", "generator", "min", "max"}
"""Keywords of torch with a default. `device` is missing because tests use only one."""
KEPT = {"strict", "device"}
"""Keywords that do not affect the result."""
FRAGILE = {"argument", "call", "correction"}
"""Kinds that may leave a stray comma or dot; others cannot break the syntax."""
SILENT = {"tell", "report", "progress", "print"}
"""Calls that only inform the user."""


class Edit(NamedTuple):
    """A replacement of the bytes from start to end."""

    kind: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """One fault in one file, identified by the change and not by its line number."""

    file: str
    function: str
    edit: Edit
    before: str
    """The changed lines, joined to one."""
    after: str
    occurrence: int
    weight: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of a mutant, independent of the rest of the file."""
        return self.file, self.function, self.before, self.after

    @property
    def id(self) -> str:
        """A short hash."""
        text = "\0".join((*self.key, str(self.occurrence)))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def apply(self, source: str) -> str:
        """Return the source with the fault."""
        return _apply(source.encode(), self.edit).decode()


Defaults = set[tuple[str, str]]
"""Pairs (function or class, keyword) that may be left out of a call."""


def mutants(file: str, source: str, defaults: Defaults | None = None) -> list[Mutant]:
    """List all faults of a file; they are valid Python and distinct."""
    data, tree = source.encode(), ast.parse(source)
    seen, found = {data}, []
    counts: Counter[tuple[str, ...]] = Counter()
    for function, weight, edit in _Walk(data, defaults or set()).visit(tree, "", LESS_OFTEN):
        text = _apply(data, edit)
        if text in seen or (edit.kind in FRAGILE and not _parses(text)):
            continue
        seen.add(text)
        before = _lines(data, edit.start, edit.end)
        after = _lines(text, edit.start, edit.start + len(edit.text.encode()))
        counts[key := (function, before, after)] += 1
        found.append(Mutant(file, function, edit, before, after, counts[key], weight))
    return found


def _apply(data: bytes, edit: Edit) -> bytes:
    return data[: edit.start] + edit.text.encode() + data[edit.end :]


def _parses(text: bytes) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _lines(data: bytes, start: int, end: int) -> str:
    """Return the whole lines around a span, with single spaces."""
    first = data.rfind(b"\n", 0, start) + 1
    last = data.find(b"\n", end)
    return " ".join(data[first : last if last >= 0 else len(data)].decode().split())


class _Walk:
    """Walks through a syntax tree and proposes edits."""

    def __init__(self, data: bytes, defaults: Defaults) -> None:
        self.data, self.defaults = data, defaults
        self.starts = [0, *(m.end() for m in re.finditer(b"\n", data))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the byte range of a node; columns of the tree are in bytes, too."""
        line, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        return self.starts[line - 1] + start, self.starts[last - 1] + end

    def visit(self, node: ast.AST, name: str, weight: float) -> Iterator[tuple[str, float, Edit]]:
        """Yield (function, weight, edit) of a node and its relevant descendants."""
        for edit in self.edits(node):
            yield name, weight, edit
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
        if isinstance(node, ast.FunctionDef):
            guard = node.name.lstrip("_").startswith(("require", "post_init"))
            inside = LESS_OFTEN if guard else 1.0
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield from self.visit(default, name, LESS_OFTEN)
            for edit in self.returns(node):
                yield name, inside, edit
            for part in node.body:
                yield from self.visit(part, name, inside)
            return
        for part in _below(node):
            yield from self.visit(part, name, weight)

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """Propose the edits of one node."""
        match node:
            case ast.BinOp(left, ast.MatMult(), right):
                pass
            case ast.BinOp(left, _, right):
                yield from self.swap("operator", left, right)
            case ast.Compare(left, _, rights):
                for a, b in pairwise((left, *rights)):
                    yield from self.swap("comparison", a, b)
            case ast.BoolOp(_, values):
                for a, b in pairwise(values):
                    yield from self.swap("boolean", a, b)
            case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub()):
                start = self.span(node)[0]
                sign = re.match(rb"not\s*|.", self.data[start:])
                assert sign is not None
                yield Edit("sign", start, start + sign.end(), "")
            case ast.Constant():
                for text in _constants(node.value):
                    yield Edit("constant", *self.span(node), text)
            case ast.AugAssign() | ast.Raise() | ast.Expr(ast.Call()):
                yield Edit("statement", *self.span(node), "pass")
            case ast.Assign([ast.Subscript()]):
                yield Edit("statement", *self.span(node), "pass")
            case ast.Break():
                yield Edit("loop", *self.span(node), "continue")
            case ast.Continue():
                yield Edit("loop", *self.span(node), "break")
            case ast.Call():
                yield from self.call(node)
            case ast.Attribute(_, "float64"):
                yield from self.rename(node, "float64", METHODS)

    def swap(self, kind: str, left: ast.expr, right: ast.expr) -> Iterator[Edit]:
        """Change the operator between two operands."""
        begin, end = self.span(left)[1], self.span(right)[0]
        for match in OPERATOR.finditer(self.data, begin, end):
            if match[1]:
                old = b" ".join(match[1].split()).decode()
                yield Edit(kind, *match.span(1), SWAPS[old])
                return

    def rename(self, node: ast.expr, name: str, table: dict[str, str]) -> Iterator[Edit]:
        """Replace a function by its opposite."""
        other = table | {new: old for old, new in table.items() if old not in ONE_WAY}
        if name in other:
            end = self.span(node)[1]
            yield Edit("name", end - len(name), end, other[name])

    def call(self, node: ast.Call) -> Iterator[Edit]:
        """Drop the call or an argument, or change its reduction."""
        start, end = self.span(node)
        name = _name(node.func)
        inner = self.span(node.func)[1]
        yield from self.rename(
            node.func, name, NAMES if isinstance(node.func, ast.Name) else METHODS
        )
        if name in DROPPED and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.value.id in {"math", "torch"}:
                yield Edit("call", start, inner, "")
            else:
                yield Edit("call", self.data.rfind(b".", 0, inner - len(name)), end, "")
        given = {keyword.arg for keyword in node.keywords}
        if name in {"std", "var"} and not given & {"correction", "unbiased", "ddof"}:
            comma = ", " if node.args or node.keywords else ""
            yield Edit("correction", end - 1, end - 1, f"{comma}correction=0")
        for keyword in node.keywords:
            yield from self.keyword(name, inner, keyword)

    def keyword(self, name: str, inner: int, keyword: ast.keyword) -> Iterator[Edit]:
        """Leave a keyword out, or turn it round."""
        begin, stop = self.span(keyword)
        if keyword.arg == "dim":
            value = ast.unparse(keyword.value)
            yield Edit("dim", *self.span(keyword.value), "1" if value == "0" else "0")
        if name == "clamp" and keyword.arg in {"min", "max"}:
            other = "max" if keyword.arg == "min" else "min"
            yield Edit("argument", begin, begin + len(other), other)
        if keyword.arg in OPTIONAL or (name, keyword.arg) in self.defaults:
            comma = self.data.rfind(b",", inner, begin)
            after = re.compile(rb"\s*,\s*").match(self.data, stop)
            if comma < 0 and after:
                stop = after.end()
            yield Edit("argument", comma if comma >= 0 else begin, stop, "")

    def returns(self, function: ast.FunctionDef) -> Iterator[Edit]:
        """Return an argument of the declared type unchanged."""
        if function.returns is None:
            return
        wanted = ast.dump(function.returns)
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        same = [a for a in arguments if a.annotation and ast.dump(a.annotation) == wanted]
        for node in ast.walk(function) if same else ():
            if isinstance(node, ast.Return) and node.value is not None:
                yield Edit("return", *self.span(node.value), same[0].arg)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """List the children to mutate: no annotations, decorators, messages or assertions."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return
        case ast.Call(func) if _name(func) in SILENT:
            return
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            yield from filter(None, [node.value])
        case ast.Call():
            yield from (node.func, *node.args)
            yield from (k.value for k in node.keywords if k.arg not in KEPT | {"dim"})
        case _:
            yield from ast.iter_child_nodes(node)


def _name(function: ast.expr) -> str:
    """Return the last part of a function's name."""
    match function:
        case ast.Attribute(_, name) | ast.Name(name):
            return name
        case _:
            return ""


def _constants(value: object) -> list[str]:
    """Change a number slightly, but tolerances a lot, because doubling them changes nothing."""
    match value:
        case bool():
            return [str(not value)]
        case int():
            return [str(value + 1), *([str(value - 1)] if value > 0 else [])]
        case float() if abs(value) <= 1e-5:
            return ["0.1"] if value else ["1.0"]
        case float():
            return [repr(value * 2)]
        case _:
            return []
