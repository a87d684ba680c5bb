"""Sample one network along three paths and print the mean signal-to-noise ratio of the tokens.

A masked path jumps from 0 to γ_max = 100, token by token; remasking jumps back. The continuous path
raises all tokens together and decides them at the end.
"""

from __future__ import annotations

import dsl
from dsl.core import Streams
from dsl.samplers import State, sampler

model = dsl.load("text8-tiny")
for name in ("mdlm@8", "remdm-loop@8", "localize@8"):
    blank, stream = State.blank(1, 48), Streams.derive(0, [0])
    means = []
    for state in sampler(name).steps(model.denoiser, blank, generator=stream):
        means.append(float(state.levels(model.denoiser.snr_max).mean()))
    print(f"{name:14}{' '.join(f'{mean:5.1f}' for mean in means)}")
    print(f"  {model.decode(state.tokens[0].tolist())}")
