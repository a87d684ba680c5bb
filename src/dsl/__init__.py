"""Discrete Stochastic Localization: diffusion language models over continuous token states.

    >>> import dsl
    >>> oracle = dsl.oracle.cyclic(7)                       # an exact denoiser
    >>> x = oracle.codebook[oracle.sample(1)]               # a clean sequence on the sphere
    >>> z = dsl.observe(x, x.new_full(x.shape[:2], 4.0))    # seen at SNR 4
    >>> logits = oracle(z)                                  # no time, no noise level

Names are imported when they are first used, so that `import dsl` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dsl.version import __version__ as __version__

if TYPE_CHECKING:
    from dsl import channel, evidence, families, oracle, path, presets, sampling, snr, sphere
    from dsl.channel import advance, endpoint, observe
    from dsl.correction.correct import correct
    from dsl.denoiser import Denoiser, Endpoints, posterior_mean
    from dsl.evaluation.calibration import calibrate
    from dsl.evaluation.comparison import compare
    from dsl.evaluation.measurement import evaluate
    from dsl.evidence import Evidence, given
    from dsl.generation import generate, infill
    from dsl.loading import load
    from dsl.models.config import ModelConfig
    from dsl.models.model import DSLModel
    from dsl.runs import train
    from dsl.scoring.texts import likelihood
    from dsl.streams import Streams
    from dsl.types import MASK

_HOME = {
    "advance": "dsl.channel",
    "endpoint": "dsl.channel",
    "observe": "dsl.channel",
    "Denoiser": "dsl.denoiser",
    "Endpoints": "dsl.denoiser",
    "posterior_mean": "dsl.denoiser",
    "Evidence": "dsl.evidence",
    "given": "dsl.evidence",
    "generate": "dsl.generation",
    "infill": "dsl.generation",
    "load": "dsl.loading",
    "likelihood": "dsl.scoring.texts",
    "train": "dsl.runs",
    "compare": "dsl.evaluation.comparison",
    "correct": "dsl.correction.correct",
    "evaluate": "dsl.evaluation.measurement",
    "calibrate": "dsl.evaluation.calibration",
    "ModelConfig": "dsl.models.config",
    "DSLModel": "dsl.models.model",
    "Streams": "dsl.streams",
    "MASK": "dsl.types",
}
_MODULES = (
    "channel",
    "evidence",
    "families",
    "oracle",
    "path",
    "presets",
    "sampling",
    "snr",
    "sphere",
)

__all__ = [
    "MASK",
    "DSLModel",
    "Denoiser",
    "Endpoints",
    "Evidence",
    "ModelConfig",
    "Streams",
    "advance",
    "calibrate",
    "channel",
    "compare",
    "correct",
    "endpoint",
    "evaluate",
    "evidence",
    "families",
    "generate",
    "given",
    "infill",
    "likelihood",
    "load",
    "observe",
    "oracle",
    "path",
    "posterior_mean",
    "presets",
    "sampling",
    "snr",
    "sphere",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"dsl.{name}")
    raise AttributeError(f"module 'dsl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
