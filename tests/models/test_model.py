from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsl.conditioning.evidence import Confident, Evidence, Known, Unknown, given
from dsl.core import sphere
from dsl.core.channel import observe
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from dsl.models.rotary import Rotary
from tests.conftest import assert_near, assert_unit_norm, perturbed

B, L = 3, 6


def state(model: DSLModel) -> torch.Tensor:
    tokens = torch.randint(model.config.vocab_size, (B, L))
    return observe(model.codebook[tokens].detach(), 10 * torch.rand(B, L))


def endpoints(model: DSLModel) -> Endpoints:
    return Endpoints(torch.randint(-1, model.config.vocab_size, (B, L)))


def test_it_is_a_denoiser(model: DSLModel) -> None:
    assert isinstance(model, Denoiser)
    assert model(state(model)).shape == (B, L, 11)


@torch.no_grad()
def test_rows_asked_for_are_rows_of_the_whole(model: DSLModel) -> None:
    at = torch.rand(B, L) < 0.5
    at[1] = False
    for z in (state(model), endpoints(model)):
        assert_near(model(z, at=at), model(z)[at])


@torch.no_grad()
def test_a_sequence_nobody_asks_for_is_not_computed(
    model: DSLModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    features = model.backbone.features
    monkeypatch.setattr(model.backbone, "features", lambda x: seen.append(len(x)) or features(x))
    at = torch.zeros(B, L, dtype=torch.bool)
    at[2, 3] = True
    assert model(endpoints(model), at=at).shape == (1, 11)
    assert seen == [1]


@pytest.mark.parametrize("grad", [False, True])
def test_looking_endpoints_up_is_converting_them(model: DSLModel, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        ends = endpoints(model)
        z = ends.z(model.codebook, model.snr_max)
        assert_near(model(ends), model(z))


@torch.no_grad()
def test_the_look_up_follows_the_parameters(model: DSLModel) -> None:
    ends = endpoints(model)
    model(ends)
    for change in (
        lambda: model.converter.bias.add_(torch.randn(12)),
        lambda: model.sphere.weight.copy_(sphere.random(11, 6)),
        lambda: model.load_state_dict(perturbed(model.config).state_dict()),
        lambda: model.double(),
    ):
        change()
        z = ends.z(model.codebook, model.snr_max)
        assert_near(model(ends), model(z))


@torch.no_grad()
def test_hinted_endpoints_are_converted_where_hinted(model: DSLModel) -> None:
    ends = endpoints(model)
    row = [Unknown(), Confident(3, 0.7), Known(4), *[Unknown()] * (L - 3)]
    hints = Evidence.of([row] * B, model)
    z = ends.z(model.codebook, model.snr_max)
    conditioned = given(model, hints)
    assert_near(conditioned(ends), conditioned(z))


@torch.no_grad()
def test_nothing_asked_and_nothing_hinted_are_answered(model: DSLModel) -> None:
    none = torch.zeros(B, L, dtype=torch.bool)
    assert model(state(model), at=none).shape == (0, 11)
    assert model(endpoints(model), at=none).shape == (0, 11)
    ends = endpoints(model)
    silent = Endpoints(ends.tokens, torch.zeros(B, L, 6))
    assert_near(model(silent), model(ends))


def test_positions_are_told_apart_in_bfloat16() -> None:
    """Casting the model must not cast the angles of its rotary embedding."""
    x = torch.randn(1, 2, 1024, 8)
    exact, cast = Rotary(8)(x), Rotary(8).bfloat16()(x.bfloat16()).float()
    assert (exact - cast).abs().max() < 0.1


def test_the_codebook_cannot_leave_the_sphere(model: DSLModel) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(state(model)).square().mean().backward()
        optimizer.step()
    assert_unit_norm(model.codebook)


def test_gradients_reach_every_parameter_that_is_used(model: DSLModel) -> None:
    tokens = torch.randint(11, (B, L))
    z = observe(model.codebook[tokens], 5 * torch.rand(B, L))
    torch.nn.functional.cross_entropy(model(z).transpose(1, 2), tokens).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_frozen_codebook_is_not_trained() -> None:
    config = ModelConfig(
        5, codebook_dim=4, hidden_dim=8, n_blocks=1, n_heads=2, codebook="simplex",
        train_codebook=False,
    )  # fmt: skip
    model = DSLModel(config)
    torch.testing.assert_close(model.codebook, sphere.simplex(5))
    assert not model.sphere.weight.requires_grad


def test_a_projected_codebook_needs_a_table_of_the_right_size() -> None:
    config = ModelConfig(
        5, codebook_dim=3, hidden_dim=8, n_blocks=1, n_heads=2, codebook="projected"
    )
    assert_unit_norm(DSLModel(config, table=torch.randn(5, 8)).codebook)
    with pytest.raises(ValueError, match="must have 5 rows, got 6"):
        DSLModel(config, table=torch.randn(6, 8))


def test_bad_states_are_named(model: DSLModel) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        model(torch.full((1, 2, 6), torch.inf))
    with pytest.raises(ValueError, match="6 coordinates per token, got 5"):
        model(torch.zeros(1, 2, 5))
    with pytest.raises(ValueError, match="ids must lie in -1 … 10, got 3 … 11"):
        model(Endpoints(torch.tensor([[3, 11]])))


class TestFolder:
    @torch.no_grad()
    def test_round_trip(self, model: DSLModel, tmp_path: Path) -> None:
        model.save_pretrained(tmp_path)
        again = DSLModel.from_pretrained(tmp_path)
        assert again.config == model.config
        assert not again.training
        z = state(model)
        assert torch.equal(again(z), model(z))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]

    def test_tensors_that_do_not_fit_are_named(self, model: DSLModel, tmp_path: Path) -> None:
        model.save_pretrained(tmp_path)
        path = tmp_path / "model.safetensors"
        whole = load_file(path)
        for change, message in (
            ({"converter.beta": None}, "missing converter.beta"),
            ({"converter.gamma": torch.ones(1)}, "unexpected converter.gamma"),
            (
                {"converter.bias": torch.ones(3)},
                r"converter.bias has shape \(3,\), expected \(12,\)",
            ),
        ):
            tensors = {k: v for k, v in (whole | change).items() if v is not None}
            save_file(tensors, path)
            with pytest.raises(ValueError, match=message):
                DSLModel.from_pretrained(tmp_path)

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"hiden_dim": 16}, "unknown key 'hiden_dim'; expected some of vocab_size"),
            ({"vocab_size": "many"}, r"expected int, got 'many' @ \$\.vocab_size"),
            ({"dropout": True}, r"expected float, got True @ \$\.dropout"),
            (
                {"backbone": "rnn"},
                r"expected one of 'dit', 'encoder', 'llama'; got 'rnn' @ \$\.backbone",
            ),
            ({"n_blocks": 10**9}, "blocks.* weights"),
            ({"n_blocks": 1e9}, r"expected int, got 1000000000.0 @ \$\.n_blocks"),
            ({"n_heads": 3}, "n_heads times an even number"),
            ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
            ({"mask_probability": 1.0}, r"mask_probability must lie in \(0, 1\)"),
            ({"codebook": "simplex"}, "needs codebook_dim >= 10, got 6"),
            ({"vocab_size": 12}, "does not fit its config.json"),
        ],
    )
    def test_configs_that_do_not_fit_are_named(
        self, model: DSLModel, tmp_path: Path, change: dict[str, object], message: str
    ) -> None:
        model.save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(ValueError, match=message):
            DSLModel.from_pretrained(tmp_path)

    def test_what_is_no_checkpoint_is_said_to_be_none(
        self, model: DSLModel, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError, match="no checkpoint directory at"):
            DSLModel.from_pretrained(tmp_path / "nowhere")
        with pytest.raises(FileNotFoundError, match=r"it has no config\.json"):
            DSLModel.from_pretrained(tmp_path)
        model.save_pretrained(tmp_path)
        (tmp_path / "model.safetensors").write_bytes(b"torn")
        with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
            DSLModel.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ValueError, match="is not JSON"):
            DSLModel.from_pretrained(tmp_path)
