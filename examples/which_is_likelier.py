"""Compare two readings of a line by their likelihoods, with standard errors."""

from __future__ import annotations

import dsl

READINGS = ("he lived in the city of london", "he lived in the cily of lomdon")
for text in READINGS:
    report = dsl.likelihood("text8-tiny", [text], length=len(text), budget=64, only=("roar",))
    bits = report.bits_per_token("roar")
    print(f"{bits.mean:.2f} ± {bits.stderr:.2f} bits per letter  {text}")
