"""Checkpoints of other systems, and the weights of ours: bytes that somebody else wrote."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import save

from dsl.checkpoints import mdlm as mdlm_import
from dsl.families import registry as table
from dsl.models import folder
from dsl.models.mdlm import MDLM
from tests.fuzz.cases import fuzz, mutated

pytestmark = pytest.mark.slow

NETWORK = MDLM(6, hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=2)


def pickled() -> bytes:
    file = io.BytesIO()
    state = {f"backbone.{name}": tensor for name, tensor in NETWORK.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3, "hyper_parameters": {"a": [1, "b"]}}, file)
    return file.getvalue()


def flipped(content: bytes) -> st.SearchStrategy[bytes]:
    """Flip single bytes where a reader looks first: at the beginning and at the end."""
    near = st.integers(0, min(400, len(content) - 1))
    return st.builds(
        lambda place, late, bits: bytes(
            byte ^ (bits if index == (len(content) - 1 - place if late else place) else 0)
            for index, byte in enumerate(content)
        ),
        near,
        st.booleans(),
        st.integers(1, 255),
    )


def test_a_lightning_checkpoint_is_read_or_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "last.ckpt", pickled()

    def read(found: bytes) -> None:
        path.write_bytes(found)
        assert mdlm_import.read(path).tokens

    found = [pickle.dumps({"state_dict": {}}, protocol=protocol) for protocol in range(6)]
    cases = st.one_of(mutated([content]), flipped(content), st.binary(max_size=200))
    fuzz("checkpoints", cases, read, [content, b"", *found], share=0.4)


def test_foreign_safetensors_are_read_or_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "model.safetensors", save(NETWORK.state_dict())

    def read(found: bytes) -> None:
        path.write_bytes(found)
        assert mdlm_import.read(path).tokens

    cases = st.one_of(mutated([content]), flipped(content), st.binary(max_size=200))
    fuzz("checkpoints", cases, read, [content, b""], share=0.3)


def test_our_weights_are_read_or_refused(tmp_path: Path) -> None:
    network = table.FAMILIES["dsl"].build(
        table.FAMILIES["dsl"].shape(5, 6, {"hidden_dim": 8, "n_blocks": 1, "n_heads": 2})
    )
    table.FAMILIES["dsl"].write(network, tmp_path)
    path = tmp_path / folder.WEIGHTS
    content = path.read_bytes()
    (tmp_path / folder.CONFIG).write_bytes(unchecked(tmp_path))

    def read(found: bytes) -> None:
        path.write_bytes(found)
        table.read(tmp_path)

    cases = st.one_of(mutated([content]), flipped(content), st.binary(max_size=200))
    fuzz("checkpoints", cases, read, [content, b""], share=0.3)


def unchecked(place: Path) -> bytes:
    """Leave out the checksum, which would hide what lies behind it."""
    lines = (place / folder.CONFIG).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if folder.CHECKSUM not in line]
    return "\n".join(kept).replace(",\n}", "\n}").encode()
