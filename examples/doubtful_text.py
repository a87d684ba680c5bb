"""Correct a text whose letters have different confidences, and rank the corrections.

A recogniser read a line with a confidence for each letter, and could not read one word.
"""

from __future__ import annotations

import torch

import dsl
from dsl.conditioning import Confident, Hint, Unknown
from dsl.evaluation import leave_one_out

READ = "The presidemt of the United ______ of America"
SURE = {11: 0.4}
"""The letter at 11 has a low confidence; all others have 0.99."""

model = dsl.load("english-tiny")
hints: list[Hint] = [
    Unknown() if letter == "_" else Confident(model.encode(letter)[0], SURE.get(i, 0.99))
    for i, letter in enumerate(READ)
]
samples = dsl.generate(model, n=8, sampler="roar:temperature=0.5", hints=hints, seed=0)
tokens = torch.tensor([model.encode(sample.text) for sample in samples])
certainty = leave_one_out(model.denoiser, tokens).mean(dim=1)

print(f"read    {READ}")
for score, sample in sorted(zip(certainty.tolist(), samples, strict=True), key=lambda p: -p[0])[:3]:
    print(f"{score:7.1%} {sample.text}")
