from __future__ import annotations

import torch

from dsl.conditioning.padding import padded
from dsl.core.denoiser import Continuous, Denoiser, Endpoints
from dsl.core.oracle import markov
from dsl.core.types import MASK
from tests.conftest import assert_near

SHORT, LONG = 3, 5


def test_the_beginning_of_a_longer_sequence_is_marginal() -> None:
    """A chain cut short is a chain: unknown tokens after a text say nothing about it."""
    whole, cut = markov(size=4, length=LONG), markov(size=4, length=SHORT)
    beginning = padded(whole, LONG - SHORT)
    tokens = torch.tensor([[1, MASK, MASK], [MASK, 0, MASK]])  # whose last is not known
    e = torch.randn(2, SHORT, whole.codebook.shape[1], dtype=torch.float64)
    at = torch.tensor([[False, True, False], [True, False, True]])
    for z in (Endpoints(tokens), Endpoints(tokens, e), e):
        ours, theirs = beginning(z).log_softmax(-1), cut(z).log_softmax(-1)
        assert_near(ours.exp(), theirs.exp())
        assert_near(beginning(z, at=at).softmax(-1), theirs[at].exp())


def test_it_is_what_it_wraps() -> None:
    chain = markov(size=4, length=LONG)
    assert padded(chain, 0) is chain
    wrapped = padded(chain, 2)
    assert isinstance(wrapped, Continuous)
    assert wrapped.vocab_size == 4 and wrapped.snr_max == chain.snr_max

    class Masked:
        vocab_size, device = 4, torch.device("cpu")

        def __call__(self, z: object, /, *, at: object = None) -> object:
            raise AssertionError

    plain = padded(Masked(), 2)  # type: ignore[arg-type]
    assert isinstance(plain, Denoiser) and not isinstance(plain, Continuous)
