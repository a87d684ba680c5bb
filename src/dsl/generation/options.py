"""The options of generation: the arguments of `dsl.generate`, and the flags of `dsl sample`.

Each option is written here once. Python functions and commands take their arguments, defaults and
help from these dataclasses. Nothing here imports torch, so that help is quick.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import tyro

from dsl._util.validate import finite_number, whole_number
from dsl._util.validate import text as require_text

F = TypeVar("F", bound=Callable[..., Any])

Ending = Literal["unknown", "here", "open"]
"""What follows a text: unknown tokens that are not returned, the end of the document, or a
continuation by the model."""


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """How to draw texts."""

    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """Number of sequences."""
    sampler: str = "mdlm@64"
    """The sampler, with its steps, or a YAML file."""
    temperature: float | None = None
    """Overrides the sampler's temperature; 0 takes the most likely tokens."""
    top_p: float | None = None
    """Overrides the sampler's top-p: draw from the most likely tokens of this total probability."""
    guidance: float = 1.0
    """Weight of the given text. Above 1, texts fit it better and vary less, at twice the calls."""
    seed: int = 0
    """Random seed. The seed and a sequence's index determine its text."""
    batch_size: int = 32
    """Sequences per batch."""

    def check(self) -> None:
        """Reject invalid values."""
        whole_number("n", self.n, least=1, most=10**7)
        whole_number("batch_size", self.batch_size, least=1, most=10**6)
        whole_number("seed", self.seed, least=0)
        finite_number("guidance", self.guidance, least=0.0, most=1000.0)
        if self.temperature is not None:
            finite_number("temperature", self.temperature, least=0.0, most=1e6)
        if self.top_p is not None:
            finite_number("top_p", self.top_p, least=0.0, most=1.0)


@dataclass(frozen=True, kw_only=True)
class SampleOptions(DrawOptions):
    """How to draw sequences, and the texts they begin and end with."""

    length: int | None = None
    """Tokens in a sequence; by default the model's own length."""
    prompt: str = ""
    """Text that every sequence begins with."""
    suffix: str = ""
    """Text that every sequence ends with."""
    match: str | None = None
    """A regular expression that every text must match as a whole. Use a sampler that draws one
    token at a time, such as roar or causal (extra match)."""
    stride: int | None = None
    """Write texts longer than the model: move its window by this many tokens at a time."""

    def check(self) -> None:
        """Reject invalid values."""
        super().check()
        for name in ("length", "stride"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=1, most=10**6)
        require_text("prompt", self.prompt)
        require_text("suffix", self.suffix)
        if self.match is not None:
            require_text("match", self.match)


@dataclass(frozen=True, kw_only=True)
class InfillOptions(DrawOptions):
    """How to fill gaps."""

    sampler: str = "roar"
    """The sampler, with its steps, or a YAML file. The default draws one token at a time."""
    ending: Ending = "unknown"
    """For models of documents, what follows the text: unknown tokens that are not returned, the end
    of the document (here), or a continuation by the model (open)."""


def keywords(kind: type[DrawOptions]) -> Callable[[F], F]:
    """Give a function that takes `**options` the signature and help of an options class."""

    def decorate(function: F) -> F:
        own = inspect.signature(function).parameters
        named = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(kind)
            if field.name not in own
        ]
        signature = inspect.signature(function).replace(parameters=[*named, *more])
        function.__signature__ = signature  # type: ignore[attr-defined]
        rows = [f"    {n}: {d}" for n, d in documented(kind).items() if n not in own]
        function.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n" + "\n".join(rows)
        return function

    return decorate


def documented(kind: type[DrawOptions]) -> dict[str, str]:
    """Return the docstring of every field of an options class."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in pairwise(tree.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name) and isinstance(text.value, ast.Constant)
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found
