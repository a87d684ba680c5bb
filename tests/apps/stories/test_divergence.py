"""Both divergences between small models, against enumeration of all their texts."""

from __future__ import annotations

import itertools

import pytest
import torch
from tokenizers import AddedToken

from dsl.apps.stories.divergence import causal_nats, counted, divergence
from dsl.checkpoints.loading import Model
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.data.tokenizers import bracketed, characters
from dsl.evaluation.judges import Teacher
from dsl.families.dsl import DSL
from dsl.families.registry import FAMILIES
from dsl.models.ar import ArModel, ArShape

V, L = 3, 3
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))


def causal(seed: int, letters: str = "abc") -> Model:
    torch.manual_seed(seed)
    shape = ArShape(V, hidden_dim=16, n_blocks=1, n_heads=2, model_length=L, dropout=0.0)
    network = ArModel(shape).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return Model(f"causal-{seed}", network, characters(letters), L, FAMILIES["ar"])


def log_p(model: Model) -> torch.Tensor:
    """The probability of every text along the path from left to right."""
    return -causal_nats(model, TEXTS, counted(model, TEXTS))


def test_the_path_from_left_to_right_is_a_distribution() -> None:
    chain = oracle.markov(V, L)
    exact = Model("chain", chain, characters("abc"), L, DSL)
    for model in (causal(1), exact):
        assert float(log_p(model).exp().sum()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(log_p(exact), chain.log_prob(TEXTS))


@pytest.mark.parametrize("kind", ["causal", "chain"])
def test_both_directions_are_those_of_enumeration(kind: str) -> None:
    source = causal(1)
    model = causal(2) if kind == "causal" else Model(
        "chain", oracle.markov(V, L, sharpness=0.7), characters("abc"), L, DSL
    )  # fmt: skip
    p, q = log_p(source), log_p(model)
    forward, reverse = (float((a.exp() * (a - b)).sum()) / L for a, b in ((p, q), (q, p)))
    assert abs(forward - reverse) > 0.01, "else swapping them would pass"
    n = 1500
    drawn = TEXTS[torch.multinomial(p.exp(), n, replacement=True, generator=stream(0))]
    found = divergence(model, Teacher.of(source), drawn, seed=1)
    assert abs(found.forward.mean - forward) < 4 * found.forward.stderr
    assert abs(found.reverse.mean - reverse) < 4 * found.reverse.stderr
    assert 0 < found.forward.stderr < 0.05 and 0 < found.reverse.stderr < 0.05


def test_the_divergence_of_a_model_from_itself_is_zero() -> None:
    source = causal(1)
    found = divergence(source, Teacher.of(source), TEXTS, seed=0)
    assert found.forward.mean == pytest.approx(0, abs=1e-5)
    assert found.reverse.mean == pytest.approx(0, abs=1e-5)


def test_a_document_counts_up_to_its_end() -> None:
    tokens = torch.tensor([[0, 2, 2], [2, 0, 2], [0, 1, 1]])
    assert counted(causal(1), tokens).all()
    letters = characters("ab")
    letters.add_special_tokens([AddedToken(".")])
    ended = bracketed(letters, "", ".")
    document = Model("it", causal(1).denoiser, ended, L, FAMILIES["ar"], documents=True)
    wanted = [[True, True, False], [True, False, False], [True, True, True]]
    assert counted(document, tokens).tolist() == wanted


def test_incomparable_models_are_refused() -> None:
    source = Teacher.of(causal(1))
    with pytest.raises(ValueError, match="must have the tokenizer of the source causal-1"):
        divergence(causal(2, "abd"), source, TEXTS)
    vp = Model("mine", causal(2).denoiser, source.model.tokenizer, L, FAMILIES["vp"])
    with pytest.raises(ValueError, match="from left to right, got mine of family vp"):
        divergence(vp, source, TEXTS)
