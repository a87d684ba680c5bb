"""Where corpora, tokenizers and judges are kept."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """Return where what was fetched is kept: DSL_CACHE, or the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("DSL_CACHE") or f"{home}/dsl").expanduser()
