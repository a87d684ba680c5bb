"""DSL models for the Auto classes of transformers (extra `transformers`).

Importing this module registers them. A directory written by `export` also works with
`trust_remote_code=True` instead, if this package is installed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl._util import files
from dsl._util.extras import require
from dsl.checkpoints import Model
from dsl.core import MASK, Endpoints, Noisy, Tokens
from dsl.data import TOKENIZER
from dsl.models import DSLModel, ModelConfig

transformers: Any = require("transformers", extra="transformers")
MaskedLMOutput: Any = require("transformers.modeling_outputs", extra="transformers").MaskedLMOutput

REMOTE = "modeling_dsl.py"
REMOTE_CODE = '''"""Classes of the installed dsl package, for transformers' Auto classes."""

from dsl.integrations.transformers import DSLForMaskedLM, HubConfig

__all__ = ["DSLForMaskedLM", "HubConfig"]
'''
MASK_TOKEN = "[MASK]"


class HubConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """A ModelConfig under `shape`; the id of [MASK] is the one after the last token."""

    model_type = "dsl"

    def __init__(self, shape: dict[str, Any] | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.shape = dict(shape or {"vocab_size": 2})
        self.vocab_size = self.shape["vocab_size"]
        self.mask_token_id = self.vocab_size


class DSLForMaskedLM(transformers.PreTrainedModel):  # type: ignore[misc]
    """A DSLModel that takes token ids including [MASK], or states z."""

    config_class = HubConfig
    base_model_prefix = "dsl"

    def __init__(self, config: HubConfig) -> None:
        super().__init__(config)
        self.dsl = DSLModel(ModelConfig.from_dict(dict(config.shape)))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Keep the weights that DSLModel initialized."""

    def forward(
        self,
        input_ids: Tokens | None = None,
        z: Noisy | None = None,
        labels: Tokens | None = None,
        attention_mask: Tokens | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Return clean-token logits and, with labels, their cross-entropy (-100 is ignored)."""
        if attention_mask is not None and not attention_mask.bool().all():
            raise ValueError("padding is not supported: all texts of a batch need one length")
        if (input_ids is None) == (z is None):
            raise ValueError("give either input_ids or states z, and not both")
        state: Noisy | Endpoints
        if z is not None:
            state = z
        else:
            assert input_ids is not None
            masked = input_ids == self.config.mask_token_id
            state = Endpoints(input_ids.masked_fill(masked, MASK))
        logits: Float[Tensor, "b l v"] = self.dsl(state)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        found = MaskedLMOutput(loss=loss, logits=logits)
        return found if return_dict in (None, True) else found.to_tuple()


transformers.AutoConfig.register("dsl", HubConfig, exist_ok=True)
transformers.AutoModel.register(HubConfig, DSLForMaskedLM, exist_ok=True)
transformers.AutoModelForMaskedLM.register(HubConfig, DSLForMaskedLM, exist_ok=True)


@torch.no_grad()
def export(model: Model, out: Path) -> None:
    """Write a directory that AutoModel, AutoModelForMaskedLM and AutoTokenizer load."""
    if not isinstance(model.denoiser, DSLModel):
        raise ValueError(
            f"export needs a DSL model, got {model.name}, a {type(model.denoiser).__name__}"
        )
    if model.tokenizer is not None and model.tokenizer.token_to_id(MASK_TOKEN) is not None:
        raise ValueError(f"the tokenizer of {model.name} must not have a {MASK_TOKEN} token")
    inner = model.denoiser
    config = HubConfig(shape=inner.config.to_dict())
    config.auto_map = {
        "AutoConfig": f"{Path(REMOTE).stem}.HubConfig",
        "AutoModel": f"{Path(REMOTE).stem}.DSLForMaskedLM",
        "AutoModelForMaskedLM": f"{Path(REMOTE).stem}.DSLForMaskedLM",
    }
    config.architectures = ["DSLForMaskedLM"]
    wrapped = DSLForMaskedLM(config)
    wrapped.dsl.load_state_dict(inner.state_dict())
    with files.whole(out) as part:
        wrapped.save_pretrained(part)
        # save_pretrained may rewrite auto_map for foreign classes
        saved = json.loads((part / "config.json").read_text(encoding="utf-8"))
        saved["auto_map"] = config.auto_map
        (part / "config.json").write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
        (part / REMOTE).write_text(REMOTE_CODE, encoding="utf-8")
        if model.tokenizer is not None and model.weights is not None:
            shutil.copyfile(model.weights / TOKENIZER, part / TOKENIZER)
            about = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": MASK_TOKEN}
            (part / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")
