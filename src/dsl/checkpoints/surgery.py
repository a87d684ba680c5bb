"""Weight surgery: causal to masked, masked to DSL (section 5.1), and DSL to masked networks.

The weights stay. A masked network is bidirectional and has an embedding of [MASK]; a DSL network
reads mixtures of embeddings.
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
"""Largest cosine of two keys; at γ_max = 100 the nearest token then has weight e^-15."""


def masked(model: ArModel) -> MdlmModel:
    """Make a causal network bidirectional; [MASK] gets the mean embedding."""
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
    """Make a masked model with the logits of a DSL model at its endpoints.

    Its embeddings are the converter's outputs for the endpoint states.
    """
    config = model.config
    if not isinstance(model.backbone, DiT) or config.evidence_logits:
        raise ValueError(
            "only a DSL model with DiT blocks and without evidence_logits can become a masked model"
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
    """Make a DSL model from a network: values are its embeddings, keys their projections.

    Args:
        model: A causal or masked network with llama blocks.
        codebook_dim: Dimension of a token state; v - 1 or 64 if not given.
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
        raise ValueError("only networks with llama blocks can be converted")


@torch.no_grad()
def causal_parity(source: ArModel, made: MdlmModel | DSLModel, *, seed: int = 0) -> float:
    """Return the largest difference of logits under a causal mask, on random tokens.

    It is relative to the largest logit. A DSL network mixes a little of the nearest tokens into
    each embedding, so its difference is more than rounding.
    """
    tokens = torch.randint(
        source.vocab_size, (4, min(64, source.config.model_length)), generator=stream(seed)
    )
    if source.config.end is not None:  # after the end, logits are fixed
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
    """Return the largest relative difference of logits on randomly masked tokens."""
    generator = stream(seed)
    size = (4, min(64, source.config.model_length))
    tokens = torch.randint(source.vocab_size, size, generator=generator)
    hidden = torch.rand(size, generator=generator) < 0.5
    state = Endpoints(tokens.masked_fill(hidden, MASK))
    theirs = source(state)
    return float((made(state) - theirs).abs().max() / theirs.abs().max())
