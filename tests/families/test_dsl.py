"""DSL's own family: states between mask and token, and no clock."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsl.core import oracle
from dsl.core.denoiser import Clocked, Continuous, Endpoints
from dsl.core.path import Tabulated
from dsl.core.streams import Streams
from dsl.families.dsl import DSL
from dsl.families.mixed_snr import MixedSNROptions
from dsl.likelihoods.estimate import Effort
from dsl.models.dsl import DSLModel
from tests.conftest import assert_near
from tests.families.conftest import SIZES, TOKENS, awake


def test_the_codebook_is_as_wide_as_exactness_asks() -> None:
    """D = v - 1 makes all evidence exact; where that is too wide, or another is chosen, not."""
    exact, wide = DSL.shape(27, 8, SIZES), DSL.shape(50_257, 8, SIZES)
    assert (exact.codebook_dim, exact.codebook) == (26, "simplex")  # type: ignore[attr-defined]
    assert (wide.codebook_dim, wide.codebook) == (64, "random")  # type: ignore[attr-defined]
    chosen = DSL.shape(27, 8, {**SIZES, "codebook_dim": 4})
    assert (chosen.codebook_dim, chosen.codebook) == (4, "random")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="a simplex of 27 tokens needs codebook_dim >= 26"):
        DSL.shape(27, 8, {**SIZES, "codebook_dim": 4, "codebook": "simplex"})


@torch.no_grad()
def test_masks_are_states_like_all_others() -> None:
    model = awake(DSL)
    assert isinstance(model, Continuous) and not isinstance(model, Clocked)
    tokens = TOKENS.clone()
    tokens[:, [1, 4]] = -1
    state = Endpoints(tokens)
    assert_near(model(state), model(state.z(model.codebook, model.snr_max)), 1e-4)


def test_a_model_saved_by_itself_is_one_of_the_family(tmp_path: Path) -> None:
    model = awake(DSL)
    model.save_pretrained(tmp_path)
    again = DSL.read(tmp_path)
    assert isinstance(again, DSLModel) and again.config == model.config
    DSL.write(model, tmp_path)
    same = DSLModel.from_pretrained(tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert torch.equal(same.state_dict()[name], tensor)


def test_a_table_is_one_more_contour() -> None:
    snr = torch.linspace(0, 20, 5).unsqueeze(1).expand(5, 6)
    table = Tabulated(torch.linspace(0, 1, 5), snr)
    model = awake(DSL)
    plain, more = (DSL.estimators(model, Effort(8, table=own)) for own in (None, table))
    labels = [estimator.label for estimator in more]
    assert labels[:-1] == [estimator.label for estimator in plain]
    assert len(set(labels)) == len(labels)
    found = more[-1](model, TOKENS[:3], generator=Streams.derive(0, range(3)))
    assert found.values.isfinite().all()


def test_an_oracle_is_asked_like_its_networks() -> None:
    truth = oracle.markov(4, 3)
    tokens = truth.sample(8, generator=torch.Generator().manual_seed(0))
    exact = float(-truth.log_prob(tokens).mean())
    for estimator in DSL.estimators(truth, Effort(1024, cutoff=60.0)):
        found = estimator(truth, tokens, generator=Streams.derive(0, range(8)))
        gap = abs(float(found.nats.mean()) - exact)
        assert gap < 5 * found.mean_stderr + 0.02, estimator.label
    for level in DSL.levels(truth):
        logits, at = level.ask(truth, tokens, generator=Streams.derive(0, range(8)))
        assert logits.shape == (int(at.sum()), 4)


def test_its_objective_follows_the_recipe() -> None:
    model = awake(DSL)
    places, found = range(64), []
    for options in (MixedSNROptions(), MixedSNROptions(masked_only=True)):
        made = DSL.objective(model, options)
        found.append(made(TOKENS, Streams.derive(0, places), places, 64))
    assert 0 < float(found[1].count) < float(found[0].count) == TOKENS.numel()
