"""Evidence of what was read, and explanations of another length, against enumerated truth."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from dsl.apps.correct.lengths import (
    Explanation,
    LengthErrors,
    Stretch,
    explanations,
    marginal,
    weigh,
)
from dsl.apps.correct.spelling import Spelling
from dsl.checkpoints.loading import load
from dsl.conditioning.evidence import log_likelihood
from dsl.conditioning.hints import Confident, Hint, Known, NBest, Unknown
from dsl.core import oracle

V = 4


def joint(row: list[Hint], places: range | None = None) -> float:
    """Return ln Σ_x P(x) Π_i ℓ_i(x_i) over some places, by enumeration."""
    chain = oracle.markov(V, len(row))
    codebook = chain.codebook.double()
    texts = torch.tensor(list(itertools.product(range(V), repeat=len(row))))
    total = chain.log_prob(texts).double()
    for i in range(len(row)) if places is None else places:
        total = total + log_likelihood([row[i]], codebook)[texts[:, i]]
    return float(total.logsumexp(dim=0))


ROW: list[Hint] = [
    Confident(1, 0.7),
    Unknown(),
    NBest({2: 0.5, 0: 0.3}),
    Known(3),
    Confident(0, 0.4),
]


@pytest.mark.parametrize("block", [range(5), range(1, 4), range(2, 3), range(3, 5)])
def test_the_evidence_of_a_block_is_exact(block: range) -> None:
    """It is ln P(read in the block | read around it), though the walk follows one text only."""
    found = marginal(oracle.markov(V, 5), [ROW], [block], steps=len(block))
    around = joint([Unknown() if i in block else hint for i, hint in enumerate(ROW)])
    assert float(found.log_evidence) == pytest.approx(joint(ROW) - around, abs=1e-5)


def test_fewer_steps_are_an_approximation() -> None:
    exact, rough = (
        float(marginal(oracle.markov(V, 5), [ROW], [range(5)], steps=steps).log_evidence)
        for steps in (5, 1)
    )
    assert exact != pytest.approx(rough, abs=1e-3)
    assert exact == pytest.approx(rough, abs=1.0)


class AnyLength:
    """The chain of whatever length it is asked about: an oracle of texts that may be longer."""

    vocab_size, snr_max, device = V, 100.0, torch.device("cpu")
    codebook = oracle.markov(V, 2).codebook

    def __call__(self, z: object, /, *, at: torch.Tensor | None = None) -> torch.Tensor:
        length = z.tokens.shape[1] if hasattr(z, "tokens") else z.shape[1]  # type: ignore[attr-defined]
        return oracle.markov(V, length)(z, at=at)  # type: ignore[arg-type]


def test_the_posterior_over_lengths_is_bayes() -> None:
    """Under the stated rates: lost, added, split, merged or nothing, each with its evidence."""
    row: list[Hint] = [Confident(t, 0.8) for t in (0, 1, 2, 3, 1)]
    found = [
        Explanation(1, 0, (), 0.0),
        Explanation(2, 0, (Unknown(),), math.log(0.02)),
        Explanation(2, 1, (), math.log(0.03 / V)),
        Explanation(2, 2, (Known(0),), math.log(0.01)),
        Explanation(3, 1, (Known(2), Known(2)), math.log(0.05)),
    ]
    (weighed,) = weigh(AnyLength(), row, [Stretch(range(5), found)], steps=None)
    truth = torch.tensor(
        [
            e.log_prior + joint([*row[: e.place], *e.hints, *row[e.place + e.size :]])
            for e in found
        ]
    ).double()  # fmt: skip
    torch.testing.assert_close(
        torch.tensor([w.probability for w in weighed]).double(), truth.softmax(dim=0),
        atol=1e-5, rtol=0,
    )  # fmt: skip
    assert [len(w.tokens) for w in weighed] == [5, 6, 4, 4, 6]


def test_what_may_have_happened() -> None:
    spelling = Spelling(load("text8-tiny"))
    tokens = [spelling.tokens[c] for c in "the modern cat"]
    fixed = [False] * len(tokens)
    errors = LengthErrors(lost=0.01, added=0.02, split=0.03, merged=0.04, swapped=0.05)
    place = "the modern cat".index("rn")
    found = list(explanations(range(place, place + 1), tokens, fixed, spelling, errors))
    assert [(e.place - place, e.size, e.longer) for e in found] == [
        (0, 0, 0), (0, 0, 1), (0, 1, -1), (0, 2, -1), (0, 2, 0),
    ]  # fmt: skip
    assert found[4].hints == tuple(Known(spelling.tokens[c]) for c in "nr"), "swapped"
    assert found[3].hints == (Known(spelling.tokens["m"]),)
    assert found[2].log_prior == pytest.approx(math.log(0.02 / 27))
    m = next(explanations(range(4, 5), tokens, fixed, spelling, errors))
    assert m == Explanation(4, 0, (), 0.0)
    split = list(explanations(range(4, 5), tokens, fixed, spelling, errors))[-2]
    assert split.hints == tuple(Known(spelling.tokens[c]) for c in "rn")
    fixed[place] = True
    kept = list(explanations(range(place, place + 1), tokens, fixed, spelling, errors))
    assert [(e.size, e.longer) for e in kept] == [(0, 0), (0, 1)], "what is fixed stays"
