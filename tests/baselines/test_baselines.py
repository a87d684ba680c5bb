from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from dsl.baselines.ar import ArModel, ArObjective
from dsl.baselines.mdlm import MdlmModel, MdlmObjective
from dsl.baselines.vp import VpModel
from dsl.cli.main import main
from dsl.denoiser import Denoiser, Endpoints
from dsl.likelihoods.chain_rule import ChainRule
from dsl.loading import read_network, write_network
from dsl.models.config import ModelConfig
from dsl.models.mdlm_checkpoint import convert, parity, read
from dsl.streams import Streams

CONFIG = ModelConfig(
    5, codebook_dim=4, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2, dropout=0.0
)
TOKENS = torch.randint(5, (64, 6), generator=torch.Generator().manual_seed(0))


def awake(model: MdlmModel | ArModel | VpModel) -> MdlmModel | ArModel | VpModel:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def test_untrained_baselines_are_uniform() -> None:
    """AR exactly; MDLM's bound in expectation, its time being cut at 1e-3."""
    streams, places = Streams.derive(0, range(64)), range(64)
    ar = ArObjective(ArModel(CONFIG))(TOKENS, streams, places, 64)
    assert float(ar.total.detach()) == pytest.approx(math.log(5))
    draws = torch.stack([
        MdlmObjective(MdlmModel(CONFIG))(TOKENS, Streams.derive(s, range(64)), places, 64).total
        for s in range(60)
    ]).detach()  # fmt: skip
    error = float(draws.std()) / 60**0.5
    assert abs(float(draws.mean()) - math.log(5) * (1 - 1e-3)) < 4 * error


def test_mdlms_times_are_stratified_over_the_ranks() -> None:
    """Two halves of a batch are masked as the whole is."""
    objective = MdlmObjective(awake(MdlmModel(CONFIG)))  # type: ignore[arg-type]
    whole = objective(TOKENS, Streams.derive(0, range(64)), range(64), 64).total
    halves = [
        objective(TOKENS[h], Streams.derive(0, range(64)[h]), range(64)[h], 64).total
        for h in (slice(0, 32), slice(32, 64))
    ]
    torch.testing.assert_close(whole, (halves[0] + halves[1]) / 2)


@torch.no_grad()
def test_an_autoregressive_model_answers_about_prefixes() -> None:
    model = awake(ArModel(CONFIG))
    assert isinstance(model, ArModel) and isinstance(model, Denoiser)
    whole = model.teacher_forced(TOKENS)
    for k in (0, 3, 5):
        prefix = TOKENS.clone()
        prefix[:, k:] = -1
        at = torch.zeros_like(TOKENS, dtype=torch.bool)
        at[:, k] = True
        torch.testing.assert_close(model(Endpoints(prefix), at=at), whole[:, k])
    nats = ChainRule(batch_size=10)(model, TOKENS).nats
    wanted = -whole.log_softmax(-1).gather(-1, TOKENS.unsqueeze(-1)).sum(dim=(1, 2))
    torch.testing.assert_close(nats.float(), wanted)


def test_an_autoregressive_model_refuses_what_it_cannot_know() -> None:
    model = ArModel(CONFIG)
    gap, suffix = torch.tensor([[1, -1, -1]]), torch.tensor([[-1, -1, 2]])
    last, first = torch.tensor([[False, False, True]]), torch.tensor([[True, False, False]])
    for tokens, at in ((gap, last), (suffix, first)):
        with pytest.raises(ValueError, match="reads from left to right"):
            model(Endpoints(tokens), at=at)
    with pytest.raises(ValueError, match="reads from left to right"):
        model(torch.zeros(1, 3, 5))


def test_mdlm_refuses_continuous_states() -> None:
    with pytest.raises(ValueError, match="knows masks and tokens only"):
        MdlmModel(CONFIG)(torch.zeros(1, 3, 5))


@pytest.mark.parametrize("kind", [MdlmModel, ArModel, VpModel])
@torch.no_grad()
def test_baselines_survive_being_written(kind: type, tmp_path: Path) -> None:
    model = awake(kind(CONFIG))
    write_network(model, tmp_path)
    again = read_network(tmp_path)
    assert type(again) is kind
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_a_model_of_unknown_kind_is_refused(tmp_path: Path) -> None:
    write_network(ArModel(CONFIG), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"kind": "rnn"}))
    with pytest.raises(ValueError, match="unknown kind 'rnn'; expected dsl, mdlm, ar, vp"):
        read_network(tmp_path)


def test_our_mdlm_is_written_in_the_official_layout(tmp_path: Path) -> None:
    write_network(awake(MdlmModel(CONFIG)), tmp_path)
    source = read(tmp_path)
    model = convert(source)
    with torch.no_grad():
        model.converter.bias[-1] = 50.0
    assert parity(source, model, length=16) < 1e-4


@pytest.mark.parametrize("kind, path", [("mdlm", "remdm-loop@6"), ("ar", "causal"), ("vp", "vp@6")])
def test_baselines_are_trained_sampled_and_scored(
    kind: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, samples = tmp_path / "run", tmp_path / "s.jsonl"
    job = ["train", "cyclic", "--smoke", "--out", str(out)]
    job += ["--set", f"objective={kind}", "--cache", str(tmp_path / "cache")]
    assert main(job) == 0
    assert main(job) == 0  # nothing left to do: the resolved recipe is the same
    model = str(out / "model")
    job = ["sample", "-n", "4", "--model", model, "--sampler", path, "--out", str(samples)]
    assert main(job) == 0
    capsys.readouterr()
    assert main(["likelihood", model, str(samples), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    key = {"ar": "chain_rule", "mdlm": "roar", "vp": "vdm_bound"}[kind]
    # a VP network that knows nothing errs by ‖x‖² = 1 at every SNR up to 100
    uniform = math.log2(7) + (50 / math.log(2) if kind == "vp" else 0)
    assert result[key]["bits_per_token"] == pytest.approx(uniform, rel=0.04)
    assert "audit" not in result
    assert main(["likelihood", model, str(samples)]) == 0
    assert main(["sample", "--model", model, "--sampler", "edm@4"]) == 1
