"""DSL models in lm-evaluation-harness (extra `lm-eval`): ROAR for likelihoods, infilling to write.

    lm_eval --model dsl --model_args model=text8-tiny,clean=true --tasks …

after `import dsl.integrations.lm_eval`, or pass a `DslLM` to `lm_eval.simple_evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dsl.data.cleaning import prose
from dsl.denoiser import Endpoints
from dsl.evidence import Known, Observation, Unknown
from dsl.extras import require
from dsl.generation import generate
from dsl.loading import DEFAULT_MODEL, Model, load
from dsl.scoring import likelihood
from dsl.types import MASK

LM: Any = require("lm_eval.api.model", extra="lm-eval").LM
register_model: Any = require("lm_eval.api.registry", extra="lm-eval").register_model


@register_model("dsl")
class DslLM(LM):  # type: ignore[misc]
    """A DSL model, or any denoiser that evidence can condition, as the harness sees it."""

    def __init__(
        self,
        model: str | Model = DEFAULT_MODEL,
        budget: int = 64,
        sampler: str = "roar",
        seed: int = 0,
        clean: bool = False,
        **_: Any,
    ) -> None:
        """Load a model; `clean` turns every text into lower-case letters and spaces first."""
        super().__init__()
        self.model = model if isinstance(model, Model) else load(model)
        self.budget, self.sampler, self.seed, self.clean = int(budget), sampler, int(seed), clean

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return log P(continuation | context) by ROAR, and whether it is the greedy choice."""
        return [self._conditional(*request.args) for request in requests]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return log P of whole texts, block by block; what is left is a shorter block."""
        totals = []
        for request in requests:
            ids = self._ids(request.args[0])
            size = self.model.length
            blocks = [ids[begin : begin + size] for begin in range(0, len(ids), size)]
            totals.append(-sum(self._nats(block, 0) for block in blocks))
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Write on after each context, up to a stop string or the end of the model's length."""
        texts = []
        for request in requests:
            context, settings = request.args
            most = int(settings.get("max_gen_toks", self.model.length))
            known = self._ids(context)[-(self.model.length - 1) :]
            gap = min(most, self.model.length - len(known))
            hints: list[Observation] = [Known(token) for token in known]
            hints += [Unknown()] * gap
            drawn = generate(self.model, hints=hints, sampler=self.sampler, seed=self.seed)
            text = self.model.decode(drawn[0].tokens[len(known) :])
            stops = settings.get("until") or []
            for stop in [stops] if isinstance(stops, str) else stops:
                text = text.split(stop)[0] if stop else text
            texts.append(text)
        return texts

    def _ids(self, text: str) -> list[int]:
        if self.clean:
            # the space between context and continuation must survive the cleaning
            text = " " * text.startswith(" ") + prose(text) + " " * text.endswith(" ")
        return self.model.encode(text)

    def _conditional(self, context: str, continuation: str) -> tuple[float, bool]:
        before, after = self._ids(context), self._ids(continuation)
        if not after:
            return 0.0, True
        if len(after) >= self.model.length:
            raise ValueError(
                f"a continuation of {len(after)} tokens does not fit into {self.model.length}"
            )
        before = before[-(self.model.length - len(after)) :]
        ids = before + after
        return -self._nats(ids, len(before)), self._greedy(ids, len(before))

    def _nats(self, ids: list[int], begin: int) -> float:
        text = self.model.decode(ids)
        span = (begin, len(ids)) if begin else None
        report = likelihood(
            self.model, [text], length=len(ids), span=span, budget=self.budget, seed=self.seed,
            cutoff=20.0,
        )  # fmt: skip
        return float(report.estimates["roar"].nats[0])

    @torch.no_grad()
    def _greedy(self, ids: list[int], begin: int) -> bool:
        """Whether the most likely token, from left to right, is each of these."""
        n = len(ids) - begin
        rows = torch.tensor(ids).expand(n, -1).clone()
        at = torch.zeros_like(rows, dtype=torch.bool)
        for i in range(n):
            rows[i, begin + i :] = MASK
            at[i, begin + i] = True
        best = self.model.denoiser(Endpoints(rows), at=at).argmax(dim=-1)
        return best.tolist() == ids[begin:]
