"""Discrete Stochastic Localization: diffusion language models over continuous token states.

    >>> import dsl
    >>> oracle = dsl.oracle.cyclic(7)                       # an exact denoiser
    >>> x = oracle.codebook[oracle.sample(1)]               # a clean sequence on the sphere
    >>> z = dsl.observe(x, x.new_full(x.shape[:2], 4.0))    # seen at SNR 4
    >>> logits = oracle(z)                                  # no time, no noise level

Use a model:        load, Model, generate, infill, posterior, correct, likelihood
Train and measure:  train, calibrate, evaluate, compare
Hints:              Known, Unknown, Confident, Allowed, NBest, Observed, Evidence, given
Sample step by step: sampler, Sampler, State, Streams
Networks:           DSLModel, ModelConfig, Denoiser, Endpoints, MASK
Mathematics:        observe, advance, endpoint, posterior_mean,
                    and the modules channel, oracle, path, snr, sphere

The packages have more:

core           sphere, channel, SNR laws, paths, denoiser protocols, oracles, random streams
conditioning   hints, evidence, guidance, steering, allowed forms
models         networks and their parts
families       dsl, mdlm, ar, vp: network, objective, likelihoods and levels of each
samplers       states, drawing, samplers and their names
likelihoods    ROAR, path integral, chain rule, VDM bound, audit
data           corpora, tokenizers, windows, documents
checkpoints    load and convert models
generation     requests and runs behind generate and infill
evaluation     scoring, calibration, repair, judges, MAUVE, comparison
training       recipes, trainer, optimizer, checkpoints
integrations   transformers, lm-evaluation-harness
apps           the zoo of other systems, correction, molecules, stories, reproduction, the demo

Names are imported on first use, so `import dsl` is fast.
"""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports
from dsl.version import __version__ as __version__

if TYPE_CHECKING:
    from dsl.apps.correct import correct as correct
    from dsl.checkpoints import Model as Model
    from dsl.checkpoints import load as load
    from dsl.conditioning import Allowed as Allowed
    from dsl.conditioning import Confident as Confident
    from dsl.conditioning import Evidence as Evidence
    from dsl.conditioning import Known as Known
    from dsl.conditioning import NBest as NBest
    from dsl.conditioning import Observed as Observed
    from dsl.conditioning import Unknown as Unknown
    from dsl.conditioning import given as given
    from dsl.core import MASK as MASK
    from dsl.core import Denoiser as Denoiser
    from dsl.core import Endpoints as Endpoints
    from dsl.core import Streams as Streams
    from dsl.core import advance as advance
    from dsl.core import channel as channel
    from dsl.core import endpoint as endpoint
    from dsl.core import observe as observe
    from dsl.core import oracle as oracle
    from dsl.core import path as path
    from dsl.core import posterior_mean as posterior_mean
    from dsl.core import snr as snr
    from dsl.core import sphere as sphere
    from dsl.evaluation import calibrate as calibrate
    from dsl.evaluation import compare as compare
    from dsl.evaluation import evaluate as evaluate
    from dsl.evaluation import likelihood as likelihood
    from dsl.generation import generate as generate
    from dsl.generation import infill as infill
    from dsl.generation import posterior as posterior
    from dsl.models import DSLModel as DSLModel
    from dsl.models import ModelConfig as ModelConfig
    from dsl.samplers import Sampler as Sampler
    from dsl.samplers import State as State
    from dsl.samplers import sampler as sampler
    from dsl.training import train as train

__getattr__, __dir__ = exports(__name__, __file__)
