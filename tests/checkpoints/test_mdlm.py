from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dsl.checkpoints.mdlm import convert, load, parity, read
from dsl.cli.main import main
from dsl.data.tokenizers import characters
from dsl.models.dsl import DSLModel
from dsl.models.mdlm import MDLM

V, H, C = 12, 8, 4


@pytest.fixture
def network() -> MDLM:
    net = MDLM(V, hidden_dim=H, cond_dim=C, n_blocks=2, n_heads=2).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def published(net: MDLM, folder: Path, **changes: object) -> Path:
    """Write the layout of the hub's checkpoint."""
    save_file({f"backbone.{k}": v.contiguous() for k, v in net.state_dict().items()},
              folder / "model.safetensors")  # fmt: skip
    config = {"vocab_size": V, "hidden_dim": H, "time_conditioning": False} | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class Unheard:
    """A class of the training script, which whoever opens the checkpoint does not have."""


def lightning(net: MDLM, path: Path, **changes: object) -> Path:
    """Write the layout of a Lightning checkpoint, its average one larger than its weights."""
    shadow = [parameter.detach() + 1 for name, parameter in registered(net)]
    whole = {
        "state_dict": {f"backbone.{k}": v for k, v in net.state_dict().items()},
        "ema": {"decay": 0.9999, "num_updates": 3, "shadow_params": shadow},
        "hyper_parameters": {"config": Unheard(), "tokenizer": Unheard()},
        "loops": {"fit_loop": {}}, "callbacks": {}, "epoch": 1,
    } | changes  # fmt: skip
    torch.save(whole, path)
    return path


def registered(net: MDLM) -> list[tuple[str, torch.nn.Parameter]]:
    """MDLM registers its embedding first; ours, a subclass's, comes last."""
    named = list(net.named_parameters())
    return [named[-1], *named[:-1]]


@pytest.mark.parametrize("mask_index", [None, 4])
def test_endpoints_are_the_networks_tokens(
    network: MDLM, tmp_path: Path, mask_index: int | None
) -> None:
    """With a mask that is nothing but a mask, the logits agree to 1e-4 of the largest."""
    source = read(published(network, tmp_path), mask_index=mask_index)
    model = convert(source)
    assert model.config.vocab_size == V - 1 and model.config.codebook == "simplex"
    with torch.no_grad():
        model.converter.bias[-1] = 50.0
    assert parity(source, model, length=16) < 1e-4
    soft = convert(source, mask_probability=0.5)
    assert parity(source, soft, length=16) > 1e-2


def test_a_lightning_checkpoint_gives_its_average(network: MDLM, tmp_path: Path) -> None:
    source = read(lightning(network, tmp_path / "last.ckpt"))
    assert source.averaged
    for name, parameter in source.network.named_parameters():
        torch.testing.assert_close(parameter, network.state_dict()[name] + 1)
    raw = read(lightning(network, tmp_path / "raw.ckpt", ema=None))
    assert not raw.averaged
    for name, parameter in raw.network.named_parameters():
        torch.testing.assert_close(parameter, network.state_dict()[name])


def test_the_command_converts_and_the_model_can_be_used(
    network: MDLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lightning(network, tmp_path / "last.ckpt")
    out = tmp_path / "dsl"
    assert main(["convert", "mdlm", str(source), str(out), "--length", "16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parity_at_mask_bias_50"] < 1e-4 < report["parity"]
    assert report["moving_average"] is True
    assert DSLModel.from_pretrained(out).config.mask_probability == 0.99
    assert main(["sample", "--model", str(out), "--sampler", "mdlm@4"]) == 0


def test_a_tokenizer_must_fit_the_model(
    network: MDLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, given = str(lightning(network, tmp_path / "last.ckpt")), tmp_path / "given.json"
    given.write_text("no tokenizer")
    for said in ("is not a tokenizer", "must have 11 tokens as the model, got 3"):
        command = ["convert", "mdlm", source, str(tmp_path / "out"), "--tokenizer", str(given)]
        assert main(command) == 1
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        given.write_text(characters("abc").to_str())


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


class Sneaky(Malicious):
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (f"open({str(self.target)!r}, 'w')",)


@pytest.mark.parametrize("kind", [Malicious, Sneaky])
def test_a_malicious_pickle_is_refused_and_does_not_run(
    kind: type[Malicious], network: MDLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "owned"
    source = lightning(network, tmp_path / "evil.ckpt", hyper_parameters=kind(target))
    assert main(["convert", "mdlm", str(source), str(tmp_path / "out")]) == 1
    assert "no honest checkpoint does" in capsys.readouterr().err
    assert not target.exists() and not (tmp_path / "out").exists()
    # The same file does run under an ordinary unpickler: the test tests something.
    torch.load(source, weights_only=False)
    assert target.exists()


def test_what_is_no_checkpoint_is_said_to_be_none(network: MDLM, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read(tmp_path / "none.ckpt")
    (tmp_path / "torn.ckpt").write_bytes(b"torn")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        read(tmp_path / "torn.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match="must hold a dictionary, got list"):
        load(tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match="time_conditioning must be false, got None"):
        read(published(network, tmp_path, time_conditioning=None))
    with pytest.raises(ValueError, match="mask's id must lie in 0 … 11, got 40"):
        read(published(network, tmp_path), mask_index=40)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"blocks.0.norm1.weight": None}, "missing blocks.0.norm1.weight"),
        ({"blocks.0.norm3.weight": torch.ones(8)}, "unexpected blocks.0.norm3.weight"),
        ({"rotary_emb.inv_freq": torch.tensor([1.0, 0.5])}, "must have base 10,000"),
        ({"blocks.1.norm1.weight": torch.ones(3)}, r"norm1.weight has shape \(3,\), expected"),
        ({"blocks.999999999.norm1.weight": torch.ones(8)}, "unexpected blocks.999999999"),
        ({f"blocks.{'9' * 5000}.x": torch.ones(8)}, "unexpected blocks.9999"),
        ({"blocks.x.norm1.weight": torch.ones(8)}, "unexpected blocks.x.norm1.weight"),
        (
            {"rotary_emb.inv_freq": torch.ones(0)},
            r"must have 1 dimensions and values, .*\(0,\)",
        ),
        ({"rotary_emb.inv_freq": torch.ones(3)}, "must divide the 8 dimensions into pairs, got 3"),
        ({"vocab_embed.embedding": torch.ones(())}, "must have 2 dimensions and values"),
        ({"sigma_map.mlp.2.weight": torch.ones(10**6, 1)}, r"has shape .*, expected"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    network: MDLM, tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    state = network.state_dict() | change
    kept = {k: v.contiguous() for k, v in state.items() if v is not None}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "model.safetensors")


def test_an_average_that_does_not_fit_is_refused(network: MDLM, tmp_path: Path) -> None:
    shadow = [parameter.detach() for _, parameter in registered(network)]
    for wrong, message in (
        (shadow[:-1], "has 24 tensors, the network 25|has .* tensors, the network"),
        ([*shadow[1:], shadow[0]], "the moving average of vocab_embed.embedding has shape"),
    ):
        path = lightning(network, tmp_path / "x.ckpt", ema={"shadow_params": wrong})
        with pytest.raises(ValueError, match=message):
            read(path)


def test_a_few_bytes_cannot_be_a_large_tensor(network: MDLM, tmp_path: Path) -> None:
    huge = {"x": torch.ones(1).expand(10**9)}
    path = lightning(network, tmp_path / "x.ckpt", state_dict=huge)
    with pytest.raises(ValueError, match=r"must have at most [0-9,]+ bytes.* got 4,000,0"):
        read(path)
