"""The llama backbone: beside transformers' own, with and without memory, in both directions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dsl.apps.stories.corpus import draw
from dsl.checkpoints.llama import halved, read_llama2c, read_transformers
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from dsl.families.vp import VpShape
from dsl.models.ar import ArModel, ArShape
from dsl.models.llama import LlamaOptions
from tests.llamas import llama2c, transformers_config

LLAMA = {"mlp_dim": 24, "kv_heads": 2}


def network(**changes: Any) -> ArModel:
    options = LlamaOptions(**(LLAMA | changes))
    shape = ArShape(11, 16, 2, 4, dropout=0.0, model_length=12, llama=options)
    model = ArModel(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 4}, {"rope_theta": 500.0}])
def test_it_computes_what_transformers_computes(
    tmp_path: Path, tied: bool, changes: dict[str, Any]
) -> None:
    """The reference implementation of the format, on random weights."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**transformers_config(tie_word_embeddings=tied, **changes))
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    source = read_transformers(tmp_path)
    ours = source.causal()
    tokens = torch.randint(60, (3, 20))
    with torch.no_grad():
        begun = torch.cat([torch.full((3, 1), 1), tokens[:, :-1]], dim=1)
        expected = theirs(begun).logits
        found = ours.teacher_forced(tokens)
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def test_the_two_orders_of_rotated_rows_give_one_attention() -> None:
    """Rotating pairs (2i, 2i + 1) of the old rows is rotating (i, i + d/2) of the new ones."""
    rows = torch.arange(8.0).unsqueeze(1)
    assert halved(rows, 8).flatten().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert halved(torch.arange(8.0).unsqueeze(1), 4).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_memory_changes_nothing() -> None:
    model = network()
    tokens = torch.randint(11, (3, 12))
    with torch.no_grad():
        whole = model.teacher_forced(tokens)
        logits, memory = model.extend(tokens[:, :4], None)
        rows = [logits]
        for place in range(4, 11):
            logits, memory = model.extend(tokens[:, place : place + 1], memory)
            rows.append(logits)
    assert torch.allclose(torch.stack(rows, dim=1), whole[:, 4:], atol=1e-5)


def test_memory_forgets_sequences_but_not_the_others() -> None:
    model = network()
    tokens = torch.randint(11, (4, 6))
    keep = torch.tensor([True, False, False, True])
    with torch.no_grad():
        _, memory = model.extend(tokens[:, :5], None)
        memory.keep(keep)
        found, _ = model.extend(tokens[keep, 5:6], memory)
        alone, _ = model.extend(tokens[keep], None)
    assert torch.allclose(found, alone, atol=1e-5)


def test_memory_has_an_end() -> None:
    model = network()
    _, memory = model.extend(torch.zeros(1, 12, dtype=torch.long), None)
    with pytest.raises(ValueError, match="room for 13 tokens, got 14"):
        model.extend(torch.zeros(1, 1, dtype=torch.long), memory)


@pytest.mark.parametrize("family", ["dsl", "mdlm"])
@pytest.mark.parametrize("shift", [True, False])
def test_every_token_sees_every_other_and_the_window_ahead_limits_it(
    family: str, shift: bool
) -> None:
    """What each prediction depends on, by asking with one token changed at a time."""
    made = FAMILIES[family]
    options = {**LLAMA, "shift": shift}
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": options}
    model: Any = made.build(made.shape(7, 6, sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))

    def seen(ahead: int | None) -> list[list[int]]:
        model.backbone.ahead = ahead
        tokens = torch.randint(7, (1, 6))
        found = []
        with torch.no_grad():
            before = model(Endpoints(tokens))[0]
            for place in range(6):
                other = tokens.clone()
                other[0, place] = MASK
                changed = (model(Endpoints(other))[0] - before).abs().amax(dim=1) > 1e-6
                found.append(changed.nonzero().flatten().tolist())
        return found

    assert seen(None) == [list(range(6))] * 6
    first = 1 if shift else 0  # with the shift, what is seen at i predicts i + 1
    assert seen(0) == [list(range(place + first, 6)) for place in range(6)]
    ahead = 2
    assert seen(ahead) == [list(range(max(0, place + first - ahead), 6)) for place in range(6)]


def test_draws_are_the_networks_own() -> None:
    """-log P and entropies of what was drawn, against one forward over the whole text."""
    model = network()
    found = draw(model, 64, end=3, length=12, generator=Streams.derive(0, range(64)))
    log_p = model.teacher_forced(found.tokens).detach().double().log_softmax(dim=-1)
    within = torch.arange(12) < found.sizes.unsqueeze(1)
    nats = -(log_p.gather(-1, found.tokens.unsqueeze(-1)).squeeze(-1) * within).sum(dim=1)
    entropy = -((log_p.exp() * log_p).sum(dim=-1) * within).sum(dim=1)
    assert torch.allclose(found.nats, nats, atol=1e-4)
    assert torch.allclose(found.entropy, entropy, atol=1e-4)
    ended = found.sizes < 12
    assert ended.any() and not ended.all()
    last = found.tokens.gather(1, (found.sizes - 1).unsqueeze(1)).squeeze(1)
    assert (last[ended] == 3).all()
    assert ((found.tokens == 3) | within).all(), "what follows the end is the end"
    assert not ((found.tokens == 3) & (torch.arange(12) < found.sizes.unsqueeze(1) - 1)).any()


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    model = network()
    all_of_them = draw(model, 20, end=3, length=12, generator=Streams.derive(7, range(20)))
    some = draw(model, 3, end=3, length=12, generator=Streams.derive(7, [4, 11, 19]))
    assert torch.equal(some.tokens, all_of_them.tokens[[4, 11, 19]])


def test_draws_follow_the_law_of_the_first_token() -> None:
    model = network()
    n = 4000
    found = draw(model, n, end=3, length=1, generator=Streams.derive(1, range(n)))
    logits, _ = model.extend(torch.zeros(1, 0, dtype=torch.long), None)
    p = logits[0].detach().double().softmax(dim=-1)
    counts = torch.bincount(found.tokens[:, 0], minlength=11).double()
    chi = ((counts - n * p).square() / (n * p)).sum()
    assert chi < 35, "10 degrees of freedom: one in ten thousand is above"


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama2c_file_is_read_whole(tied: bool) -> None:
    source = read_llama2c(llama2c(tied=tied), "it")
    assert source.shape.llama == LlamaOptions(24, 2, tied=tied)
    logits = source.causal().teacher_forced(torch.randint(300, (1, 5)))
    assert logits.shape == (1, 5, 300) and logits.isfinite().all()


def test_restriction_is_renormalisation_and_temperature_divides() -> None:
    """Keeping some tokens gives the old probabilities, given that one of those comes."""
    source = read_llama2c(llama2c(), "it")
    kept = [7, 250, 3, 44]
    tokens = torch.tensor([[1, 3, 0, 2, 2]])
    with torch.no_grad():
        small = source.causal(kept, temperature=0.5).teacher_forced(tokens)
        whole = source.causal().teacher_forced(torch.tensor(kept)[tokens])[..., kept]
    assert torch.allclose(small, whole / 0.5, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"short", "it is not a llama2.c file: it has 5 bytes"),
        (b"\0" * 100, "it is not a llama2.c file: it begins with the sizes"),
        (llama2c()[:-4], "it is damaged: a llama2.c file of the sizes .* bytes, got"),
        (llama2c() + b"more", "it is damaged"),
        (llama2c()[:-4] + b"\0\0\xc0\x7f", "not finite"),
    ],
)
def test_a_damaged_file_gets_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_llama2c(data, "it")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type must be 'llama', got 'gpt2'"),
        ({"attention_bias": True}, "options that are not supported: {'attention_bias': True}"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling"),
        ({"head_dim": 32}, "head_dim"),
        ({"rope_scaling": ["llama3"]}, "rope settings must be an object, got a list of 1"),
        ({"num_key_value_heads": [2]}, "must divide num_attention_heads, got 4, 16 and a list"),
        ({"num_attention_heads": 3, "head_dim": None}, "must divide hidden_size"),
        ({"rms_norm_eps": None}, "rms_norm_eps must be a positive number, got None"),
        ({"hidden_size": "wide"}, "'hidden_size' must be a whole number, got 'wide'"),
        ({"bos_token_id": None}, "bos_token_id must be a token, got None"),
        ({"intermediate_size": 25}, r"has shape \(24, 16\), expected \(25, 16\)"),
        ({"num_hidden_layers": 3}, "has no tensor model.layers.2"),
    ],
)
def test_a_model_of_another_shape_gets_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    transformers = pytest.importorskip("transformers")
    import json

    config = transformers.LlamaConfig(**transformers_config())
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    if "rope_scaling" in changes:
        written.pop("rope_parameters", None)
    (tmp_path / "config.json").write_text(json.dumps({**written, **changes}))
    with pytest.raises(ValueError, match=message):
        read_transformers(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mlp_dim": 0}, "mlp_dim must lie in"),
        ({"mlp_dim": 8, "kv_heads": 0}, "kv_heads must be at least 1"),
        ({"mlp_dim": 8, "kv_heads": 3}, "n_heads must be a multiple of llama.kv_heads"),
        ({"mlp_dim": 8, "rope_base": 0.5}, "rope_base must be above 1"),
    ],
)
@pytest.mark.parametrize("family", ["dsl", "mdlm", "ar"])
def test_impossible_options_get_one_line(
    family: str, options: dict[str, Any], message: str
) -> None:
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": options}
    with pytest.raises(ValueError, match=message):
        FAMILIES[family].shape(7, 6, sizes)


def test_a_clock_has_no_llama() -> None:
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": LLAMA}
    assert FAMILIES["vp"].shape(7, 6, sizes).llama is None, "a recipe serves all families"
    with pytest.raises(ValueError, match="have no SNR input"):
        VpShape.from_dict({"vocab_size": 7, **sizes})


@pytest.mark.parametrize("family", ["dsl", "mdlm", "ar"])
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_read_as_it_was_written(tmp_path: Path, family: str, tied: bool) -> None:
    made = FAMILIES[family]
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": {**LLAMA, "tied": tied}}
    model: Any = made.build(made.shape(7, 6, sizes)).eval()
    made.write(model, tmp_path)
    again: Any = made.read(tmp_path)
    assert again.config == model.config
    state = Endpoints(torch.tensor([[MASK] * 6])) if family != "ar" else None
    if state is not None:
        assert torch.equal(again(state), model(state))


def test_options_that_are_none_get_one_line() -> None:
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": 5}
    with pytest.raises(ValueError, match=r"expected a mapping of fields @ \$\.llama"):
        FAMILIES["mdlm"].shape(7, 6, sizes)


@pytest.mark.parametrize("family", ["dsl", "mdlm"])
def test_attention_opens_over_a_share_of_the_run(family: str) -> None:
    """Causal at first, then one position further at a time, and everything once it is over."""
    made = FAMILIES[family]
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": LLAMA}
    model: Any = made.build(made.shape(7, 10, sizes))
    objective = made.objective(model, made.Options(anneal=0.5))
    seen = []
    for step in range(20):
        objective.begin(step / 20)
        seen.append(model.backbone.ahead)
    assert seen[:10] == list(range(10)) and seen[10:] == [None] * 10
    at_once = made.objective(model, made.Options())
    at_once.begin(0.0)
    assert model.backbone.ahead is None


@pytest.mark.parametrize("family", ["dsl", "mdlm"])
def test_what_was_never_causal_is_not_annealed(family: str) -> None:
    made = FAMILIES[family]
    model: Any = made.build(made.shape(7, 6, {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4}))
    with pytest.raises(ValueError, match="anneal needs llama blocks"):
        made.objective(model, made.Options(anneal=0.5))
    with pytest.raises(ValueError, match="a share of the run"):
        made.objective(model, made.Options(anneal=2.0))


def test_after_the_end_comes_the_end() -> None:
    """Padding costs nothing, and what stands before it costs what it did."""
    open_ended = network()
    closed = ArModel(replace(open_ended.config, end=3)).eval()
    closed.load_state_dict(open_ended.state_dict())
    tokens = torch.tensor([[5, 1, 3, 3, 3], [5, 1, 2, 4, 3], [3, 3, 3, 3, 3]])
    with torch.no_grad():
        before, after = (m.teacher_forced(tokens).log_softmax(-1) for m in (open_ended, closed))
    cost = -after.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    assert cost[0, 3:].abs().max() == 0 and cost[2, 1:].abs().max() == 0
    assert torch.equal(after[0, :3], before[0, :3]) and torch.equal(after[1], before[1])
    asked = closed(Endpoints(torch.tensor([[5, 3, MASK]])), at=torch.tensor([[False, False, True]]))
    assert asked.argmax(dim=-1).tolist() == [3] and asked.isfinite().sum() == 1
    with pytest.raises(ValueError, match="end must be a token, 0 … 10, got 11"):
        replace(open_ended.config, end=11)
