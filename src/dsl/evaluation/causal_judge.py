"""A causal model of ours as a judge: what it says of a text is exact, to the last token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dsl.checkpoints.loading import Model, load
from dsl.evaluation.judges import Scored
from dsl.models import folder
from dsl.models.ar import ArModel


def is_ours(path: Path) -> bool:
    """Whether a directory holds a model of ours, and not one of transformers."""
    return (path / folder.CONFIG).is_file() and "kind" in folder.read_config(path)


@dataclass(frozen=True, eq=False)
class Teacher:
    """A causal model. If texts were drawn from it, its nats of them are their entropy."""

    model: Model

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> Teacher:
        """Read a directory."""
        return cls.of(load(path, device=device))

    @classmethod
    def of(cls, model: Model) -> Teacher:
        """Take a model; only a causal one can say what a text costs."""
        if not isinstance(model.denoiser, ArModel) or model.tokenizer is None:
            raise ValueError(
                f"{model.name} is a model of family {model.family.name}; a judge of ours is a "
                "causal one with its tokenizer"
            )
        return cls(model)

    @torch.no_grad()
    def score(
        self,
        texts: Sequence[str],
        rows: Sequence[Sequence[int]],
        tokenizer: Tokenizer,
        *,
        batch_size: int = 32,
    ) -> Scored:
        """Return -log P of each text, and how many tokens and characters that counts.

        Texts that are written in the same tokens are taken as they were written; others are
        encoded, and end if they have room to. Of a document, the first end counts, and nothing that
        follows it: padding, or what a model wrote there.
        """
        model = self.model
        assert model.tokenizer is not None
        if model.tokenizer.to_str() != tokenizer.to_str():
            rows = [[*model.encode(text), *model.ends[1]][: model.length] for text in texts]
        nats, counts = [], []
        for begin in range(0, len(rows), batch_size):
            part = [self._own(row)[: model.length] for row in rows[begin : begin + batch_size]]
            longest = max(len(row) for row in part)
            fill = model.end or 0
            tokens = torch.tensor([[*row, *[fill] * (longest - len(row))] for row in part])
            counted = torch.arange(longest) < torch.tensor([len(row) for row in part]).unsqueeze(1)
            log_p = model.denoiser.teacher_forced(tokens.to(model.device)).double().log_softmax(-1)
            own = log_p.gather(-1, tokens.to(model.device).unsqueeze(-1)).squeeze(-1).cpu()
            nats.append(-own.where(counted, 0.0).sum(dim=1))
            counts.append(counted.sum(dim=1).double())
        characters = torch.tensor([len(text) for text in texts], dtype=torch.float64)
        return Scored(torch.cat(nats), torch.cat(counts), characters)

    def _own(self, row: Sequence[int]) -> list[int]:
        """Return the tokens of a document up to its end; other texts are all their own."""
        ids, end = list(row), self.model.end
        return ids[: ids.index(end) + 1] if self.model.documents and end in ids else ids
