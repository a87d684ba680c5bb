"""DSL models in lm-evaluation-harness (extra `lm-eval`): ROAR likelihoods, infilling.

>>> lm_eval.simple_evaluate(model=DslLM("text8-tiny", clean=True), tasks=[…])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.extras import require
from dsl.checkpoints import Model, load
from dsl.conditioning import Evidence, given
from dsl.conditioning.evidence import Hint, Known, Unknown
from dsl.core import MASK, Endpoints, stream
from dsl.data import prose
from dsl.generation import generate
from dsl.likelihoods import Roar

LM: Any = require("lm_eval.api.model", extra="lm-eval").LM
register_model: Any = require("lm_eval.api.registry", extra="lm-eval").register_model


@register_model("dsl")
class DslLM(LM):  # type: ignore[misc]
    """The harness's interface to a DSL model, or to any denoiser that accepts evidence."""

    def __init__(
        self,
        model: str | Model = DEFAULT_MODEL,
        budget: int = 64,
        sampler: str = "roar",
        seed: int = 0,
        clean: bool = False,
        device: str = "cpu",
        batch_size: int | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """Load a model; `clean` first reduces every text to lower-case letters and spaces.

        The harness's batch sizes are ignored: a request is a batch of ROAR draws.
        """
        super().__init__()
        self.model = model if isinstance(model, Model) else load(model, device=device)
        self.budget, self.sampler, self.seed, self.clean = int(budget), sampler, int(seed), clean
        begin, end = self.model.ends
        self.begin, self.end = list(begin), list(end)
        self.room = self.model.length - len(self.begin) - len(self.end)

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return log P(continuation | context) by ROAR, and whether it is the greedy choice."""
        return [self._conditional(*request.args) for request in requests]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return log P of whole texts, block by block; the last block may be shorter."""
        totals = []
        for request in requests:
            ids = self._ids(request.args[0])
            blocks = [ids[begin : begin + self.room] for begin in range(0, len(ids), self.room)]
            totals.append(-sum(self._nats([], block) for block in blocks))
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue each context up to a stop string or the model's length.

        The beginning of a long context is dropped.
        """
        texts = []
        for request in requests:
            context, settings = request.args
            most = min(int(settings.get("max_gen_toks", self.room)), self.room)
            ids = self._ids(context)
            known = self.begin + ids[max(0, len(ids) - max(1, self.room - most)) :]
            gap = min(most, self.model.length - len(known))
            hints: list[Hint] = [Known(token) for token in known]
            hints += [Unknown()] * gap
            drawn = generate(self.model, hints=hints, sampler=self.sampler, seed=self.seed)
            rest = drawn[0].tokens[len(known) :]
            if self.model.documents and self.model.end in rest:
                rest = rest[: rest.index(self.model.end)]
            text = self.model.decode([t for t in rest if t not in self.model.specials])
            stops = settings.get("until") or []
            for stop in [stops] if isinstance(stops, str) else stops:
                text = text.split(stop)[0] if stop else text
            texts.append(text)
        return texts

    def _ids(self, text: str) -> list[int]:
        if self.clean:
            # cleaning must keep the space between context and continuation
            text = " " * text.startswith(" ") + prose(text) + " " * text.endswith(" ")
        return self.model.encode(text)

    def _conditional(self, context: str, continuation: str) -> tuple[float, bool]:
        before, after = self._ids(context), self._ids(continuation)
        if not after:
            return 0.0, True
        if len(after) > self.room:
            raise ValueError(f"a continuation of {len(after)} tokens does not fit into {self.room}")
        before = before[max(0, len(before) + len(after) - self.room) :]
        return -self._nats(before, after), self._greedy(before, after)

    def _nats(self, before: list[int], after: list[int]) -> float:
        """Return -log P of `after`, given `before` and the special tokens of a block."""
        known = len(self.begin) + len(before)
        row = self._row([*self.begin, *before, *after, *self.end])
        hints: list[Hint] = [
            Unknown() if known <= i < known + len(after) else Known(token)
            for i, token in enumerate(row[0].tolist())
        ]
        denoiser = self.model.denoiser
        if known or self.end:
            denoiser = given(denoiser, Evidence.of([hints], denoiser))
        replicates = max(2, min(16, self.budget // 2))
        estimator = Roar(replicates, max(1, self.budget // replicates))
        found = estimator(denoiser, row, generator=stream(self.seed, device=row.device))
        return float(found.nats[0])

    @torch.no_grad()
    def _greedy(self, before: list[int], after: list[int]) -> bool:
        """Whether greedy decoding from left to right gives these tokens."""
        known = len(self.begin) + len(before)
        whole = self._row([*self.begin, *before, *after])
        rows = whole.repeat(len(after), 1)
        at = torch.zeros_like(rows, dtype=torch.bool)
        for i in range(len(after)):
            rows[i, known + i :] = MASK
            at[i, known + i] = True
        best: list[int] = self.model.denoiser(Endpoints(rows), at=at).argmax(dim=-1).tolist()
        return best == after

    def _row(self, ids: list[int]) -> Int[Tensor, "1 l"]:
        return torch.tensor([ids], device=self.model.device)
