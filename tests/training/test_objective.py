"""The mixed-SNR objective: what it counts, and that an item's loss is its own."""

from __future__ import annotations

import math

import pytest
import torch

from dsl.core import sphere
from dsl.core.snr import LogNormal, Mixed, Roar
from dsl.core.streams import Streams
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions, crowding
from dsl.families.objective import Loss
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from tests.conftest import assert_near
from tests.training.conftest import small


class TestObjective:
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(0))

    def loss(self, config: MixedSNROptions, model: DSLModel | None = None) -> Loss:
        streams = Streams.derive(0, range(6))
        return MixedSNRObjective(model or small(), config)(self.tokens, streams, range(6), 6)

    def test_an_untrained_model_is_uniform(self) -> None:
        model = DSLModel(
            ModelConfig(7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
        )
        loss = self.loss(MixedSNROptions(), model)
        assert float(loss.mean.detach()) == pytest.approx(math.log(7))

    def test_parts_are_shares_of_the_whole(self) -> None:
        parts = self.loss(MixedSNROptions(Mixed(weight=0.5))).parts
        bands = [part for name, part in parts.items() if name.startswith("snr")]
        for split in (bands, [parts["roar"], parts["continuous"]]):
            assert sum(float(value) for value, _ in split) == pytest.approx(float(parts["all"][0]))
            assert sum(int(count) for _, count in split) == 30
        assert 0 < int(parts["roar"][1]) < 30

    def test_branches_are_told_apart(self) -> None:
        only = self.loss(MixedSNROptions(Mixed(endpoint=Roar.atomic(), weight=0.0))).parts
        assert int(only["roar"][1]) == 30
        none = self.loss(MixedSNROptions(Mixed(LogNormal(1.65, 0.1), weight=1.0))).parts
        assert int(none["roar"][1]) == 0

    def test_a_continuous_sequence_may_have_a_token_near_an_end(self) -> None:
        """With ln γ ~ N(0, 1) half of all tokens lie below γ = 1; hardly ever a whole sequence."""
        wide = MixedSNROptions(Mixed(LogNormal(0.0, 1.0), weight=1.0))
        parts = self.loss(wide).parts
        below = int(parts["snr 0-0.5"][1])
        assert below > 0 and int(parts["roar"][1]) == 0

    def test_a_crowded_codebook_costs_its_weight(self) -> None:
        """The mean loss rises by the weight times the mean squared cosine, whatever is counted."""
        model = small()
        expected = 0.25 * float(crowding(model.codebook).detach())
        law = Mixed(endpoint=Roar.atomic(), weight=0.0)
        for masked_only in (False, True):
            plain, dear = (
                self.loss(MixedSNROptions(law, masked_only=masked_only, codebook_penalty=w), model)
                for w in (0.0, 0.25)
            )
            assert float(plain.count) > 0
            rise = float((dear.mean - plain.mean).detach())
            assert rise == pytest.approx(expected, rel=1e-3) and rise > 0

    def test_the_noise_belongs_to_the_item(self) -> None:
        """An item's loss does not depend on the batch it is in."""
        objective = MixedSNRObjective(small(), MixedSNROptions())
        whole = objective(self.tokens, Streams.derive(3, range(6)), range(6), 6)
        alone = [
            objective(self.tokens[i : i + 1], Streams.derive(3, [i]), range(i, i + 1), 6).mean
            for i in range(6)
        ]
        assert_near(whole.mean, torch.stack(alone).mean())

    @pytest.mark.parametrize("loss", ["cross-entropy", "embedding-mse"])
    def test_chunks_change_neither_loss_nor_gradients(
        self, loss: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, results = small(), []
        for elements in (2**24, 7 * 4):  # all rows at once; four at a time
            monkeypatch.setattr("dsl.families.mixed_snr.CHUNK_ELEMENTS", elements)
            monkeypatch.setattr("dsl.families.mixed_snr.KEPT_ELEMENTS", elements)
            model.zero_grad()
            total = self.loss(MixedSNROptions(loss=loss), model).mean  # type: ignore[arg-type]
            total.backward()
            results.append([total.detach(), *(p.grad.clone() for p in model.parameters())])
        for whole, chunked in zip(*results, strict=True):
            assert_near(whole, chunked, 1e-4)

    def test_masked_only_ignores_visible_tokens(self) -> None:
        config = MixedSNROptions(Mixed(endpoint=Roar.atomic(), weight=0.0), masked_only=True)
        loss = self.loss(config)
        value, count = loss.parts["snr 0-0.5"]
        assert float(loss.mean.detach()) == pytest.approx(float(value / count), rel=1e-5)

    def test_embedding_mse_is_the_squared_distance_to_the_posterior_mean(self) -> None:
        value = float(self.loss(MixedSNROptions(loss="embedding-mse")).mean.detach())
        assert 0 < value < 4  # two points of the unit ball are at most 2 apart

    def test_the_penalty_is_least_on_a_simplex(self) -> None:
        assert float(crowding(sphere.simplex(7))) == pytest.approx(1 / 36)
        assert float(crowding(torch.ones(7, 1))) == pytest.approx(1.0)
        plain, charged = (
            float(self.loss(MixedSNROptions(codebook_penalty=weight)).mean.detach())
            for weight in (0.0, 1.0)
        )
        assert charged > plain
