"""Autoregressive llamas become masked ones, masked ones localized ones (section 5.1), and back.

The weights stay; what changes is what may be asked of them. A masked network sees both sides and
has a row for [MASK]; a localized one sees mixtures of the rows.
"""

from __future__ import annotations

from dataclasses import fields

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core import sphere
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.models.ar import ArModel
from dsl.models.config import ModelConfig, codebook_for
from dsl.models.dit import DiT
from dsl.models.dsl import DSLModel
from dsl.models.llama import Llama

DIFFERENT = 0.85
"""The largest cosine of two keys: at γ_max = 100 the nearest token then has e^-15 of the weight."""


def masked(model: ArModel) -> MdlmModel:
    """Let a causal network see both sides; the row of [MASK] is the mean of the tokens' rows."""
    _require_llama(model)
    sizes = {name: value for name, value in model.config.to_dict().items() if name != "end"}
    made = MdlmModel(MdlmShape.from_dict(sizes))
    rows, begin = model.embedding[:-1].detach(), model.embedding[-1].detach()
    state = model.state_dict()
    del state["embedding"]
    state["backbone.begin"] = begin
    state["vocab_embed.embedding"] = torch.cat([rows, rows.mean(dim=0, keepdim=True)])
    made.load_state_dict(state)
    return made.eval()


def at_endpoints(model: DSLModel) -> MdlmModel:
    """Keep of a DSL model what it knows of masks and tokens: a masked model with its logits there.

    The rows of tokens and of [MASK] are what the converter makes of the endpoint states.
    """
    config = model.config
    if not isinstance(model.backbone, DiT) or config.evidence_logits:
        raise ValueError(
            "only a DSL model with DiT's blocks, whose logits have no scores of the state added, "
            "becomes a masked model"
        )
    shape = config.to_dict()
    own = {field.name for field in fields(MdlmShape)}
    made = MdlmModel(MdlmShape.from_dict({n: value for n, value in shape.items() if n in own}))
    everything = torch.arange(MASK, config.vocab_size, device=model.device).roll(-1)  # [MASK] last
    state = {f"backbone.{n}": tensor for n, tensor in model.backbone.state_dict().items()}
    with torch.no_grad():
        rows = model.mixtures(Endpoints(everything.unsqueeze(0))).squeeze(0)
    state["backbone.vocab_embed.embedding"] = rows
    for name in ("backbone.output_layer.linear.weight", "backbone.output_layer.linear.bias"):
        state[name] = torch.cat([state[name], torch.zeros_like(state[name][:1])])
    made.load_state_dict(state)
    return made.eval()


def localized(
    model: ArModel | MdlmModel,
    *,
    codebook_dim: int | None = None,
    mask_probability: float = 0.99,
) -> DSLModel:
    """Let a network see mixtures of its rows: values are the rows, keys their projections.

    Args:
        model: A causal or a masked network of llama's blocks.
        codebook_dim: Coordinates of a token state; v - 1 or 64 if not given.
        mask_probability: q(MASK | z = 0) of the converter.
    """
    source = masked(model) if isinstance(model, ArModel) else model
    _require_llama(source)
    config = source.config
    chosen = {} if codebook_dim is None else {"codebook_dim": codebook_dim}
    book = {**codebook_for(config.vocab_size, {}), **chosen}
    exact = book["codebook_dim"] >= config.vocab_size - 1
    sizes = {name: value for name, value in config.to_dict().items() if name != "cond_dim"}
    rows = source.vocab_embed.embedding.detach()
    made = DSLModel(
        ModelConfig.from_dict(
            {
                **sizes,
                "backbone": "llama",
                "codebook_dim": book["codebook_dim"],
                "codebook": "simplex" if exact else "projected",
                "mask_probability": mask_probability,
            }
        ),
        table=rows[:-1],
    )
    state = made.state_dict()
    state |= {n: t for n, t in source.state_dict().items() if n.startswith("backbone.")}
    state["converter.values.weight"] = rows
    state["sphere.weight"] = sphere.apart(state["sphere.weight"], DIFFERENT, generator=stream(0))
    made.load_state_dict(state)
    return made.eval()


def _require_llama(model: ArModel | MdlmModel) -> None:
    if not isinstance(model.backbone, Llama):
        raise ValueError("only networks of llama's blocks can be adapted")


@torch.no_grad()
def causal_parity(source: ArModel, made: MdlmModel | DSLModel, *, seed: int = 0) -> float:
    """Return the largest difference of logits with the causal mask put back, on known tokens.

    It is relative to the largest logit. A localized network reads a token as a mixture that holds
    a little of its neighbours on the sphere, so its difference is not rounding alone.
    """
    tokens = torch.randint(
        source.vocab_size, (4, min(64, source.config.model_length)), generator=stream(seed)
    )
    if source.config.end is not None:  # what follows it is not the network's choice
        tokens[tokens == source.config.end] = (source.config.end + 1) % source.vocab_size
    backbone = made.backbone
    assert isinstance(backbone, Llama)
    before, backbone.ahead = backbone.ahead, 0
    try:
        ours: Float[Tensor, "b l v"] = made(Endpoints(tokens))
    finally:
        backbone.ahead = before
    theirs = source.teacher_forced(tokens)
    return float((ours - theirs).abs().max() / theirs.abs().max())


@torch.no_grad()
def masked_parity(source: MdlmModel, made: DSLModel, *, seed: int = 0) -> float:
    """Return the largest difference of logits where tokens are masked or known, likewise."""
    generator = stream(seed)
    size = (4, min(64, source.config.model_length))
    tokens = torch.randint(source.vocab_size, size, generator=generator)
    hidden = torch.rand(size, generator=generator) < 0.5
    state = Endpoints(tokens.masked_fill(hidden, MASK))
    theirs = source(state)
    return float((made(state) - theirs).abs().max() / theirs.abs().max())
