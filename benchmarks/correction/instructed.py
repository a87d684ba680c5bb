"""A small instruction-tuned language model, prompted to correct a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dsl.apps.correct.reading import Reading
from dsl.data import default_cache
from dsl.evaluation import fetch
from dsl.evaluation.judges import Judge

ASKED = (
    "The following text was read by a machine and has misread characters. "
    "Correct them and change nothing else. Answer with the corrected text alone.\n\n"
)
LONGER = 1.3
"""Maximum length of an answer, relative to the text, in tokens."""


@dataclass(frozen=True, eq=False)
class Instructed:
    """SmolLM2-135M-Instruct, Q4_1, greedy decoding, without confidences."""

    judge: Judge
    name: str = "SmolLM2-135M, asked to"
    settings: Sequence[float] = (0.0,)

    @classmethod
    def load(cls, cache: Path | None = None) -> Instructed:
        """Load the model from the cache; fetch it first if needed."""
        return cls(Judge.load(fetch("smollm2", cache or default_cache())))

    @torch.no_grad()
    def __call__(self, reading: Reading, setting: float) -> str:
        """Return the answer of the model."""
        text = " ".join(reading.text.split())
        tokenizer: Any = self.judge.tokenizer
        talk = [{"role": "user", "content": ASKED + text}]
        asked = tokenizer.apply_chat_template(
            talk, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        room = int(LONGER * len(tokenizer(text)["input_ids"])) + 8
        said = self.judge.network.generate(**asked, max_new_tokens=room, do_sample=False)
        begin = asked["input_ids"].shape[1]
        answer: str = tokenizer.decode(said[0, begin:], skip_special_tokens=True)
        return answer
