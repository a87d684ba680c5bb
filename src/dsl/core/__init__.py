"""The mathematics: sphere, channel, SNR laws and paths, what a denoiser is, exact oracles."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.core import channel as channel
    from dsl.core import oracle as oracle
    from dsl.core import path as path
    from dsl.core import snr as snr
    from dsl.core import sphere as sphere
    from dsl.core.alpha import Linear as Linear
    from dsl.core.alpha import Schedule as Schedule
    from dsl.core.alpha import ScheduleName as ScheduleName
    from dsl.core.alpha import schedule as schedule
    from dsl.core.alpha import time_of as time_of
    from dsl.core.channel import advance as advance
    from dsl.core.channel import endpoint as endpoint
    from dsl.core.channel import observe as observe
    from dsl.core.denoiser import Clocked as Clocked
    from dsl.core.denoiser import Continuous as Continuous
    from dsl.core.denoiser import Denoiser as Denoiser
    from dsl.core.denoiser import Endpoints as Endpoints
    from dsl.core.denoiser import Network as Network
    from dsl.core.denoiser import Prefixed as Prefixed
    from dsl.core.denoiser import Rated as Rated
    from dsl.core.denoiser import RatedAtOnce as RatedAtOnce
    from dsl.core.denoiser import at_once as at_once
    from dsl.core.denoiser import posterior_mean as posterior_mean
    from dsl.core.denoiser import require_logits as require_logits
    from dsl.core.denoiser import require_rated as require_rated
    from dsl.core.denoiser import require_tokens as require_tokens
    from dsl.core.denoiser import wanted as wanted
    from dsl.core.oracle import Enumerated as Enumerated
    from dsl.core.oracle import Oracle as Oracle
    from dsl.core.oracle import cyclic as cyclic
    from dsl.core.oracle import markov as markov
    from dsl.core.oracle import two_bit as two_bit
    from dsl.core.path import Tabulated as Tabulated
    from dsl.core.streams import Randomness as Randomness
    from dsl.core.streams import Streams as Streams
    from dsl.core.streams import categorical as categorical
    from dsl.core.streams import normal as normal
    from dsl.core.streams import permutation as permutation
    from dsl.core.streams import stream as stream
    from dsl.core.streams import uniform as uniform
    from dsl.core.types import MASK as MASK
    from dsl.core.types import Codebook as Codebook
    from dsl.core.types import Logits as Logits
    from dsl.core.types import Mask as Mask
    from dsl.core.types import Noisy as Noisy
    from dsl.core.types import Rows as Rows
    from dsl.core.types import Tokens as Tokens

__getattr__, __dir__ = exports(__name__, __file__)
