from __future__ import annotations

import pytest
import torch

import dsl
from dsl.conditioning.evidence import log_likelihood
from dsl.conditioning.hints import Confident, Known, Unknown
from dsl.core import oracle
from dsl.core.types import MASK


def test_the_rotations_leave_one_text_or_all() -> None:
    """One known letter decides the others; with none, every letter is equally likely."""
    found = dsl.posterior("[2]C[4]", "oracle:cyclic-7")
    torch.testing.assert_close(found.p, torch.eye(7, dtype=torch.float64), rtol=0, atol=1e-12)
    assert [row[0][0] for row in found.top(1)] == list("ABCDEFG")
    assert str(found).splitlines() == [f"{i}  '{c}' 1.000" for i, c in enumerate("ABCDEFG")]
    blank = dsl.posterior("[7]", "oracle:cyclic-7")
    assert all(len(row.split("0.143")) == 4 for row in str(blank).splitlines())
    none = blank.p
    torch.testing.assert_close(none, torch.full_like(none, 1 / 7), rtol=0, atol=1e-12)


def test_soft_hints_tilt_the_distribution() -> None:
    plain = [None, {"token": "b", "confidence": 0.7}, None, "c", {"allowed": ["a", "e"]}, None]
    found = dsl.posterior(model="oracle:markov", hints=plain)
    truth = oracle.markov(6, 6)
    hints = [Unknown(), Confident(1, 0.7), Unknown(), Known(2), dsl.Allowed((0, 4)), Unknown()]
    tilted = truth.tilt(torch.stack([log_likelihood([h], truth.codebook) for h in hints]))
    masked = torch.full((1, 6), MASK)
    wanted = tilted(dsl.Endpoints(masked))[0].softmax(dim=-1)
    torch.testing.assert_close(found.p, wanted, rtol=0, atol=1e-9)
    (text, value), *_ = found.top(2)[4]
    assert text in "ae" and value == pytest.approx(float(wanted[4].max()))


def test_a_network_has_posteriors_too() -> None:
    found = dsl.posterior("Lily and her mom went to the [1] to play.")
    candidates = dict(found.top(8)[8]) if found.model.spaced else {}
    assert float(found.p.sum(dim=1).sub(1).abs().max()) < 1e-5
    assert " park" in candidates and candidates[" park"] > 0.1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "give a text with gaps or hints"),
        ({"text": "[7]", "hints": [None]}, "give a text with gaps or hints"),
        ({"text": "ABCDEFG"}, "the text has no gap"),
        ({"hints": [[None] * 7, [None] * 7]}, "hints must describe one sequence or all 1, got 2"),
    ],
)
def test_mistakes_are_explained(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dsl.posterior(model="oracle:cyclic-7", **arguments)  # type: ignore[arg-type]
