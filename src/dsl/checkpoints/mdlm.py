"""Convert MDLM checkpoints, safetensors or Lightning files, to DSL models (section 5.1)."""

from __future__ import annotations

import re
import sys
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from dsl._util.files import parse_json
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.models import folder
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from dsl.models.mdlm import MDLM

INERT = {"argparse", "collections", "copyreg", "datetime", "decimal", "enum", "logging", "pathlib",
         "re", "types", "typing", "uuid"}  # fmt: skip
"""Standard modules whose objects are replaced by stand-ins, like those of other packages."""
PLAIN = {"builtins": {"bool", "bytes", "dict", "float", "frozenset", "int", "list", "object",
                      "range", "slice", "str", "tuple", "type"},
         "_operator": {"getitem"}}  # fmt: skip
"""Other standard names that configurations use: plain types, and what makes Optional[int]."""


class StandIn:
    """Replaces an object of a pickle: it accepts any arguments and does nothing."""

    def __new__(cls, *_: Any) -> Any:
        """Take any arguments."""
        return super().__new__(cls)

    def __setstate__(self, _: Any) -> None:
        return None


class StandInDict(StandIn):
    """Replaces a class of dictionaries, because the unpickler fills only plain ones."""

    def __new__(cls, *_: Any) -> Any:
        """Return an empty dictionary that can have attributes."""
        return OrderedDict()


class StandInList(StandIn):
    """Replaces a class of lists, for the same reason."""

    def __new__(cls, *_: Any) -> Any:
        """Return an empty list."""
        return []


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint written by torch.save, or safetensors under a checkpoint's name."""
    if _is_safetensors(path):
        return dict(load_file(path))
    _require_archive(path)
    try:
        wanted = get_unsafe_globals_in_checkpoint(path)
    except Exception as error:
        raise _unreadable(path, error) from error
    stand_ins: list[Any] = [(stand_in(name), name) for name in sorted(wanted)]
    try:
        # mmap limits every tensor to the bytes of the file, whatever size it declares
        with safe_globals(stand_ins):
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} must hold a dictionary, got {type(loaded).__name__}")
    return loaded


def stand_in(name: str) -> type[StandIn]:
    """Return the stand-in for a class or function; dangerous names are errors."""
    module, _, last = name.rpartition(".")
    root = module.split(".")[0]
    if root in sys.stdlib_module_names and root not in INERT and last not in PLAIN.get(module, ()):
        raise ValueError(
            f"the checkpoint wants to call {name}, which no honest checkpoint does; "
            "it was not opened"
        )
    if module != "builtins" and last.lower().endswith("dict"):
        return StandInDict
    return StandInList if last.lower().endswith(("list", "deque")) else StandIn


def _is_safetensors(path: Path) -> bool:
    """Whether the file begins like safetensors: a plausible header length and a brace."""
    with path.open("rb") as file:
        length, brace = int.from_bytes(file.read(8), "little"), file.read(1)
    return brace == b"{" and length <= path.stat().st_size - 8


def _require_archive(path: Path) -> None:
    """Raise an error unless a file is a torch.save archive, before unpickling anything."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"PK\x03\x04":
        raise ValueError(
            f"{path} is not a readable checkpoint: it is neither a zip archive of torch.save nor "
            "safetensors; it was not opened"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _unreadable(path, error) from error
    if not any(record.filename.split("/")[1:] == ["data.pkl"] for record in records):
        raise ValueError(f"{path} is not a readable checkpoint: it holds no data.pkl")
    whole = path.stat().st_size
    for record in records:
        # torch.save never compresses, so a record is not longer than the file
        if record.compress_type != zipfile.ZIP_STORED or record.file_size > whole:
            raise ValueError(
                f"{path} is not a readable checkpoint: {record.filename} is compressed or longer "
                "than the file"
            )


def _unreadable(path: Path, error: Exception) -> ValueError:
    """Return a one-line error; torch may raise any exception for damaged bytes."""
    lines = str(error).splitlines() or [type(error).__name__]
    return ValueError(f"{path} is not a readable checkpoint: {lines[0]}")


SHARED = 4
"""How often tensors may use the same bytes of a file, as tied weights do."""
DIMENSIONS = {
    "vocab_embed.embedding": 2,
    "sigma_map.mlp.2.weight": 2,
    "rotary_emb.inv_freq": 1,
}
"""The tensors whose shapes give the sizes of the network, with their dimensions."""
PREFIXES = ("_forward_module.", "module.", "backbone.", "_orig_mod.")


@dataclass(frozen=True, eq=False)
class Source:
    """An MDLM network and its mask token."""

    network: MDLM
    mask_index: int
    averaged: bool
    """Whether the weights are the moving average."""

    @property
    def tokens(self) -> list[int]:
        """The ids of the real tokens, in order."""
        rows = self.network.vocab_embed.embedding.shape[0]
        return [token for token in range(rows) if token != self.mask_index]


def read(source: str | Path, *, mask_index: int | None = None) -> Source:
    """Read a safetensors directory or file, a hub id, or a Lightning checkpoint."""
    path = Path(source).expanduser()
    if path.suffix in (".ckpt", ".pt", ".pth", ".bin"):
        state, averaged = _from_pickle(path)
    else:
        where = path if path.is_file() else folder.locate(source)
        config = where / folder.CONFIG
        if where.is_dir() and config.is_file():
            _require_no_clock(parse_json(config.read_bytes(), str(config)), config)
        file = where / folder.WEIGHTS if where.is_dir() else where
        try:
            state, averaged = _stripped(load_file(file)), True
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} cannot be read as safetensors: {error}") from error
    network = _fill(state)
    rows = network.vocab_embed.embedding.shape[0]
    mask = rows - 1 if mask_index is None else mask_index
    if not 0 <= mask < rows:
        raise ValueError(f"the mask's id must lie in 0 … {rows - 1}, got {mask}")
    return Source(network.eval().requires_grad_(False), mask, averaged)


def convert(
    source: Source,
    *,
    codebook_dim: int | None = None,
    mask_probability: float = 0.99,
    length: int = 1024,
) -> DSLModel:
    """Make a DSL model with the logits of an MDLM network at its endpoints.

    Values are MDLM's embedding rows with [MASK] last, the head has no mask row, β = 1, and b_MASK
    sets q(MASK | z = 0) to `mask_probability`.
    """
    net, order = source.network, source.tokens
    v, h = len(order), net.vocab_embed.embedding.shape[1]
    d = codebook_dim or (v - 1 if v <= 257 else 64)
    config = ModelConfig(
        v,
        codebook_dim=d,
        hidden_dim=h,
        cond_dim=net.state_dict()["sigma_map.mlp.2.weight"].shape[0],
        n_blocks=len(net.blocks),
        n_heads=net.blocks[0].heads,  # type: ignore[arg-type]
        model_length=length,
        codebook="simplex" if d >= v - 1 else "random",
        mask_probability=mask_probability,
    )
    model = DSLModel(config)
    state = model.state_dict()
    for name, tensor in net.state_dict().items():
        if name == "vocab_embed.embedding":
            state["converter.values.weight"] = tensor[[*order, source.mask_index]]
        elif name.startswith("output_layer.linear."):
            state[f"backbone.{name}"] = tensor[order]
        else:
            state[f"backbone.{name}"] = tensor
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def parity(source: Source, model: DSLModel, *, length: int = 64, seed: int = 0) -> float:
    """Return the largest difference of logits on random, partially masked sequences.

    It is relative to the largest logit, because rounding errors grow with the logits.
    """
    generator = stream(seed)
    order = torch.tensor(source.tokens)
    tokens = torch.randint(len(order), (4, length), generator=generator)
    hidden = torch.rand(4, length, generator=generator) < 0.5
    ids = torch.where(hidden, source.mask_index, order[tokens])
    theirs: Float[Tensor, "b l v"] = source.network(ids)[..., order]
    ours = model(Endpoints(tokens.masked_fill(hidden, MASK)))
    scale = theirs.abs().max().clamp(min=torch.finfo(theirs.dtype).tiny)
    return float((ours - theirs).abs().max() / scale)


def _from_pickle(path: Path) -> tuple[dict[str, Tensor], bool]:
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {str(path)!r}")
    loaded = load(path)
    raw, ema = loaded.get("state_dict", loaded), loaded.get("ema")
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: state_dict must be a dictionary, got {type(raw).__name__}")
    shadow = dict.get(ema, "shadow_params") if isinstance(ema, dict) else None
    averages = shadow if isinstance(shadow, list) else []
    tensors = [each for each in [*dict.values(raw), *averages] if isinstance(each, Tensor)]
    size, most = sum(t.numel() * t.element_size() for t in tensors), SHARED * path.stat().st_size
    if size > most:
        raise ValueError(
            f"{path} is not a readable checkpoint: its tensors must have at most {most:,} bytes, "
            f"{SHARED} times the file, got {size:,}"
        )
    # call dict's methods: attributes of a pickled dictionary may shadow its own
    state = _stripped(
        {k: v for k, v in dict.items(raw) if isinstance(k, str) and isinstance(v, Tensor)}
    )
    if shadow is None:
        return state, False
    if not isinstance(shadow, list) or not all(isinstance(each, Tensor) for each in shadow):
        raise ValueError(f"{path}: the moving average must be a list of tensors")
    return _averaged(state, shadow), True


def _averaged(state: dict[str, Tensor], shadow: list[Tensor]) -> dict[str, Tensor]:
    """Replace parameters by their moving averages, a list in MDLM's order, checking shapes."""
    names = _parameter_order(state)
    if len(names) != len(shadow):
        raise ValueError(
            f"the moving average has {len(shadow)} tensors, the network {len(names)} parameters"
        )
    for name, tensor in zip(names, shadow, strict=True):
        if tensor.shape != state[name].shape:
            raise ValueError(
                f"the moving average of {name} has shape {tuple(tensor.shape)}, "
                f"expected {tuple(state[name].shape)}"
            )
    return state | dict(zip(names, shadow, strict=True))


def _parameter_order(state: dict[str, Tensor]) -> list[str]:
    """Return the names in the order in which MDLM registers its parameters."""
    numbers = (name.split(".")[1] for name in state if name.startswith("blocks."))
    found = [int(n) for n in numbers if re.fullmatch(r"[0-9]{1,9}", n)]
    # a block has several tensors, so larger numbers are names that nothing expects
    blocks = 1 + max((number for number in found if number < len(state)), default=-1)
    inside = ("norm1.weight", "attn_qkv.weight", "attn_out.weight", "norm2.weight", "mlp.0.weight",
              "mlp.0.bias", "mlp.2.weight", "mlp.2.bias", "adaLN_modulation.weight",
              "adaLN_modulation.bias")  # fmt: skip
    return [
        "vocab_embed.embedding",
        *(f"sigma_map.mlp.{i}.{kind}" for i in (0, 2) for kind in ("weight", "bias")),
        *(f"blocks.{i}.{name}" for i in range(blocks) for name in inside),
        "output_layer.norm_final.weight",
        "output_layer.linear.weight",
        "output_layer.linear.bias",
        "output_layer.adaLN_modulation.weight",
        "output_layer.adaLN_modulation.bias",
    ]


def _stripped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    stripped = {}
    for name, tensor in state.items():
        while name.startswith(PREFIXES):
            name = name.split(".", 1)[1]
        stripped[name] = tensor
    return stripped


def _fill(state: dict[str, Tensor]) -> MDLM:
    """Build the network from the shapes of its tensors and load them."""
    wanted = {*_parameter_order(state), "rotary_emb.inv_freq"}
    faults = [f"missing {name}" for name in sorted(wanted - set(state))]
    faults += [f"unexpected {ascii(name)[1:-1]}" for name in sorted(set(state) - wanted)]
    if faults:
        more = f"; and {len(faults) - 5} more" if faults[5:] else ""
        raise ValueError(f"this is not an MDLM checkpoint: {'; '.join(faults[:5])}{more}")
    for name, dims in DIMENSIONS.items():
        if state[name].dim() != dims or not state[name].numel():
            raise ValueError(
                f"{name} must have {dims} dimensions and values, "
                f"got shape {tuple(state[name].shape)}"
            )
    (v, h), pairs = state["vocab_embed.embedding"].shape, len(state["rotary_emb.inv_freq"])
    if h % (2 * pairs):
        raise ValueError(
            f"rotary_emb.inv_freq must divide the {h} dimensions into pairs, got {pairs} values"
        )

    def built() -> MDLM:
        return MDLM(
            v,
            hidden_dim=h,
            cond_dim=state["sigma_map.mlp.2.weight"].shape[0],
            n_blocks=sum(name.endswith("norm1.weight") for name in state),
            n_heads=h // (2 * pairs),
        )

    with torch.device("meta"):  # shapes only: a small file may imply a large network
        expected = built().state_dict()
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, expected {tuple(expected[name].shape)}"
            )
    network = built()
    own = network.state_dict()["rotary_emb.inv_freq"]
    if not torch.allclose(state["rotary_emb.inv_freq"].float(), own):
        raise ValueError("rotary_emb.inv_freq must have base 10,000")
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return network


def _require_no_clock(config: Any, path: Path) -> None:
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold one JSON object, got {type(config).__name__}")
    if config.get("time_conditioning") is not False:
        raise ValueError(
            f"{path}: time_conditioning must be false, got {config.get('time_conditioning')!r}; "
            "DSL has no time input"
        )
