from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsl.apps.reproduce.geometry import rays
from dsl.cli.main import main
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel

V = 6
SNR = torch.tensor([1e-6, 0.1, 1.0, 3.0, 10.0, 80.0])


def fresh() -> DSLModel:
    """Tokens at the corners of a simplex, no preference among them, [MASK] as likely as all."""
    torch.manual_seed(0)
    shape = ModelConfig(V, codebook_dim=V - 1, hidden_dim=8, n_blocks=1, n_heads=2)
    return DSLModel(ModelConfig.from_dict(shape.to_dict() | {"codebook": "simplex"})).double()


def test_on_a_simplex_the_target_has_its_bayes_probability() -> None:
    """Others are at cosine -1/(v - 1), and [MASK] weighs as much as all v at z = 0."""
    made = rays(fresh(), range(V), SNR)
    gamma = SNR.double()
    own, other = gamma.exp(), (V - 1) * (-gamma / (V - 1)).exp()
    wanted = (own / (own + other + V)).unsqueeze(1).expand(-1, V)
    torch.testing.assert_close(made.target_probability, wanted, atol=1e-6, rtol=0)
    heavier = (own > V) & (own > 1)  # than [MASK]
    torch.testing.assert_close(made.recovered, heavier.double())


def test_rays_begin_at_the_mask_and_end_at_the_rows() -> None:
    model = fresh()
    made = rays(model, [4, 1], SNR)
    table = model.converter.values.weight.detach()
    start = 0.5 * table[:-1].mean(dim=0) + 0.5 * table[-1]
    torch.testing.assert_close(made.mixtures[0], start.expand(2, -1), atol=1e-5, rtol=0)
    torch.testing.assert_close(made.mixtures[-1], table[[4, 1]], atol=1e-5, rtol=0)


def test_the_plane_holds_the_most_it_can() -> None:
    """No two directions of the data carry more variance than the plane's."""
    made = rays(fresh(), range(V), SNR)
    flat = made.principal_plane().flatten(0, 1)
    shown = float((flat - flat.mean(dim=0)).square().sum())
    rows = made.mixtures.flatten(0, 1)
    best = torch.linalg.svdvals(rows - rows.mean(dim=0))[:2].square().sum()
    assert shown == pytest.approx(float(best))
    assert float(made.principal_plane()[0].abs().max()) < 1e-4


class TestFigure:
    def test_it_is_drawn_from_a_model(self, tmp_path: Path) -> None:
        out = tmp_path / "geometry.svg"
        job = ["reproduce", "figure", "geometry", "text8-tiny", "--out", str(out)]
        assert main([*job, "--tokens", "a", "e", " "]) == 0
        text = out.read_text()
        assert "<!-- ␣ -->" in text and "mean of 3 tokens" in text

    @pytest.mark.parametrize(
        "job, message",
        [
            (["text8-tiny-mdlm"], "has no converter"),
            (["oracle:cyclic-7"], "has no converter"),
            (["text8-tiny", "text8-tiny"], "needs exactly one model, got 2"),
            (
                ["text8-tiny", "--tokens", "the"],
                "'the' must be a single token of text8-tiny, got 3 tokens",
            ),
        ],
    )
    def test_mistakes_are_explained(
        self, job: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert (
            main(["reproduce", "figure", "geometry", *job, "--out", str(tmp_path / "g.svg")]) == 1
        )
        assert message in capsys.readouterr().err


def test_recovery_is_monotone_along_a_ray() -> None:
    """Norm is concentration: going out on a ray never makes its own token less likely."""
    made = rays(fresh(), range(V), torch.logspace(-2, 2, 50))
    assert bool((made.target_probability.diff(dim=0) > -1e-9).all())
    assert float(made.target_probability[-1].min()) == pytest.approx(1.0)
