"""Defaults that commands and functions share; nothing here imports torch."""

from pathlib import Path

DEFAULT_MODEL = "stories-tiny"
"""The model used when none is named."""

RECIPES = Path(__file__).parents[1] / "recipes"
"""The bundled recipes."""


def recipe_names() -> list[str]:
    """List the bundled recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))
