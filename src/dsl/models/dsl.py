"""DSLModel: codebook, converter and backbone, one denoiser for continuous and endpoint states."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.core.channel import require_finite
from dsl.core.denoiser import Endpoints, materialise, require_tokens, wanted
from dsl.core.types import MASK, Codebook, Mask, Noisy, Rows, Tokens
from dsl.models import folder
from dsl.models.codebook import UnitCodebook, initial_table
from dsl.models.config import ModelConfig, ShapedNetwork
from dsl.models.converter import Converter, TableValues, UnitValues
from dsl.models.dit import DiT, Hidden
from dsl.models.encoder import Encoder
from dsl.models.llama import Llama


class DSLModel(ShapedNetwork):
    """The denoiser network f(z), which needs no time input (equation 3)."""

    def __init__(self, config: ModelConfig, *, table: Float[Tensor, "v h"] | None = None) -> None:
        """Build an untrained model; `table` is the source of a projected codebook."""
        super().__init__(config)
        self.config = config
        v, d, h = config.vocab_size, config.codebook_dim, config.hidden_dim
        self.sphere = UnitCodebook(
            initial_table(config.codebook, v, d, source=table), trainable=config.train_codebook
        )
        values = TableValues(v, h) if config.values == "table" else UnitValues(d, h)
        self.converter = Converter(
            v, values, beta=config.beta, mask_probability=config.mask_probability
        )
        self.backbone: DiT | Encoder | Llama
        if config.llama is not None:
            self.backbone = Llama(v, config.llama, **config.blocks)
        elif config.backbone == "dit":
            self.backbone = DiT(v, cond_dim=config.cond_dim, **config.blocks)
        else:
            self.backbone = Encoder(v, **config.blocks)
        self._endpoint_rows = EndpointRows()

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        codebook: Tensor = self.sphere()
        return codebook

    @property
    def snr_max(self) -> float:
        """γ_max, the SNR at which a revealed token is realised."""
        return self.config.snr_max

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits: (b, l, v), or the (n, v) rows that `at` chooses."""
        z, at = wanted(z, at)
        features = self.backbone.features(self.mixtures(z))
        own = materialise(z, self) if self.config.evidence_logits else None
        if at is not None:
            features, own = features[at], None if own is None else own[at]
        return self.logits(features, own)

    def logits(self, features: Hidden, z: Float[Tensor, "*rows d"] | None = None) -> Rows:
        """Pass the given rows of features through the head, which may be the table of values.

        Args:
            features: The backbone's output rows.
            z: Their states; with `evidence_logits`, P(v | z) ∝ π_v e^⟨z, x_v⟩ (equation 12), where
                the head gives log π_v from the context. In float32, as in the converter.
        """
        context = self._head(features)
        if z is None or not self.config.evidence_logits:
            return context
        with torch.autocast(z.device.type, enabled=False):
            exact = torch.promote_types(torch.float32, z.dtype)
            return context + nn.functional.linear(z.to(exact), self.codebook.to(exact))

    def _head(self, features: Hidden) -> Rows:
        if isinstance(self.backbone, Llama):
            values = self.converter.values
            return self.backbone.head(
                features, values.weight[:-1] if isinstance(values, TableValues) else None
            )
        return self.backbone.head(features)

    def mixtures(self, z: Noisy | Endpoints) -> Float[Tensor, "b l h"]:
        """Convert states to the backbone's input, by look-up where they are endpoints."""
        if not isinstance(z, Endpoints):
            require_finite(z)
            self._require_dim(z)
            converted: Tensor = self.converter(z, self.codebook)
            return converted
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        rows = self._endpoint_rows(self, z.tokens)
        if z.e is None:
            return rows
        require_finite(z.e)
        self._require_dim(z.e)
        hinted = (z.e != 0).any(dim=-1).expand_as(z.tokens)
        state = z.z(self.codebook, self.snr_max)
        rows = rows.clone()
        rows[hinted] = self.converter(state[hinted].unsqueeze(0), self.codebook).squeeze(0)
        return rows

    def save_pretrained(self, directory: str | Path) -> None:
        """Write model.safetensors and config.json into a directory."""
        folder.save(directory, self.config.to_dict(), self.state_dict())

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None) -> DSLModel:
        """Load a model from a local directory or a hub id, in evaluation mode."""
        path = folder.locate(source, revision=revision)
        model = cls(ModelConfig.from_dict(folder.read_config(path), ignore=frozenset({"kind"})))
        folder.load_tensors(path, model)
        return model.eval()

    def _require_dim(self, z: Noisy) -> None:
        if z.shape[-1] != self.config.codebook_dim:
            raise ValueError(
                f"this model's states have {self.config.codebook_dim} coordinates per token, "
                f"got {z.shape[-1]}"
            )


class EndpointRows:
    """The converter's output at the two endpoints, which depends on the token alone.

    Rows are computed when a token first occurs and kept until a parameter changes, so a masked
    sampler never pays for a softmax as wide as the vocabulary. With gradients
    enabled nothing is cached.
    """

    def __init__(self) -> None:
        self._made_from: tuple[object, ...] = ()
        self._rows = torch.empty(0)
        self._known = torch.empty(0, dtype=torch.bool)

    def __call__(self, model: DSLModel, tokens: Tokens) -> Float[Tensor, "b l h"]:
        """Return the mixtures of a batch of endpoint states."""
        if torch.is_grad_enabled():
            present, inverse = tokens.unique(return_inverse=True)
            return self._convert(model, present)[inverse]
        self._refresh(model)
        present = tokens.unique()
        missing = present[~self._known[present]]  # MASK = -1 is the last row
        if len(missing):
            self._rows[missing] = self._convert(model, missing).to(self._rows.dtype)
            self._known[missing] = True
        return self._rows[tokens]

    def _refresh(self, model: DSLModel) -> None:
        parameters = (*model.sphere.parameters(), *model.converter.parameters())
        # An optimizer step bumps _version; .to() and loading by assignment change the address.
        made_from = tuple((p._version, p.data_ptr(), p.dtype, p.device) for p in parameters)
        if made_from != self._made_from:
            like = parameters[-1]
            rows = model.config.vocab_size + 1
            self._rows = like.new_zeros(rows, model.config.hidden_dim)
            self._known = torch.zeros(rows, dtype=torch.bool, device=like.device)
            self._made_from = made_from

    @staticmethod
    def _convert(model: DSLModel, tokens: Tensor) -> Float[Tensor, "n h"]:
        state = Endpoints(tokens.unsqueeze(0)).z(model.codebook, model.snr_max)
        converted: Tensor = model.converter(state, model.codebook)
        return converted.squeeze(0)
