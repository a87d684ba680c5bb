"""Learning rates, the moving average, and Muon."""

from __future__ import annotations

import pytest
import torch

from dsl.training.optimizer import OptimizerConfig, average, optimizer, orthogonal
from tests.training.conftest import small


class TestOptimizer:
    def test_rates(self) -> None:
        config = OptimizerConfig(lr=1.0, warmup=10, schedule="cosine", final=0.1)
        rates = [config.rate(step, 110) for step in range(111)]
        assert rates[:10] == [pytest.approx((i + 1) / 10) for i in range(10)]
        assert rates[10] == 1.0 and rates[60] == pytest.approx(0.55)
        assert rates[110] == pytest.approx(0.1)
        assert OptimizerConfig(lr=1.0).rate(10**6, 10) == 1.0
        assert OptimizerConfig(lr=1.0, schedule="linear").rate(5, 10) == 0.5

    def test_the_average_forgets_its_beginning(self) -> None:
        update, mean = average(0.9999), torch.zeros(1)
        for n in range(200):
            mean = update(mean, torch.ones(1), n)
        assert float(mean) > 0.99

    def test_matrices_decay_by_rate_times_decay(self) -> None:
        """Without a gradient a step shrinks the matrices of the blocks, as AdamW's others."""
        model = small()
        made = optimizer(model, OptimizerConfig(kind="muon", lr=0.1, weight_decay=0.5))
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        made.step()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                torch.testing.assert_close(parameter.detach(), before[name] * (1 - 0.1 * 0.5))

    def test_impossible_settings_are_refused(self) -> None:
        with pytest.raises(ValueError, match="lr > 0"):
            OptimizerConfig(lr=0.0)


class TestMuon:
    matrix = torch.randn(12, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def test_all_singular_values_come_near_one(self) -> None:
        values = torch.linalg.svdvals(orthogonal(self.matrix))
        assert float(values.min()) > 0.65 and float(values.max()) < 1.25

    def test_size_does_not_count_and_turns_commute(self) -> None:
        made = orthogonal(self.matrix)
        torch.testing.assert_close(orthogonal(1000 * self.matrix), made, atol=1e-4, rtol=0)
        torch.testing.assert_close(orthogonal(self.matrix.T), made.T, atol=1e-4, rtol=0)
        left, _ = torch.linalg.qr(self.matrix[:, :12])
        torch.testing.assert_close(orthogonal(left @ self.matrix), left @ made, atol=1e-4, rtol=0)

    def test_half_the_digits_turn_almost_as_well(self) -> None:
        coarse = orthogonal(self.matrix, torch.bfloat16)
        assert coarse.dtype is self.matrix.dtype
        torch.testing.assert_close(coarse, orthogonal(self.matrix), atol=0.05, rtol=0)

    def test_it_takes_the_projections_of_the_blocks(self) -> None:
        model = small()
        groups = optimizer(model, OptimizerConfig(kind="muon")).param_groups
        block = model.backbone.blocks[0]
        linear = [block.attn_qkv, block.attn_out, block.mlp[0], block.mlp[2]]
        wanted = {id(layer.weight) for layer in linear}
        assert {id(p) for p in groups[1]["params"]} == wanted
        everything = {id(p) for p in model.parameters() if p.requires_grad}
        assert {id(p) for p in groups[0]["params"]} == everything - wanted

    def test_a_step_is_as_long_as_adams_and_the_rest_is_adams(self) -> None:
        steps = {}
        for kind in ("adamw", "muon"):
            model = small()
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            adam = optimizer(model, OptimizerConfig(kind=kind, lr=1e-3))  # type: ignore[arg-type]
            luck = torch.Generator().manual_seed(1)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=luck)
            adam.step()
            steps[kind] = {n: p.detach() - before[n] for n, p in model.named_parameters()}
        for name, muons in steps["muon"].items():
            adams = steps["adamw"][name]
            if "attn" in name or ("mlp" in name and adams.ndim == 2 and "blocks" in name):
                assert 0.1e-3 < float(muons.square().mean().sqrt()) < 0.3e-3
            else:
                torch.testing.assert_close(muons, adams, atol=1e-6, rtol=0)
