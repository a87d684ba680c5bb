"""The looks of the page: colours for light and dark, and a layout that fits narrow screens."""

from __future__ import annotations

from collections.abc import Mapping

LEVELS = 10
"""Shades of doubt."""
LIGHT = {"page": "#ffffff", "ink": "#1f2328", "soft": "#57606a", "rule": "#d0d7de",
         "old": "#a3150d", "new": "#d5f0dc", "open": "#fde3b0", "doubt": "230 120 0"}  # fmt: skip
DARK = {"page": "#14171c", "ink": "#e6e8eb", "soft": "#a9b1bb", "rule": "#3a414b",
        "old": "#ff9d94", "new": "#1d4a2c", "open": "#5a4208", "doubt": "255 170 60"}  # fmt: skip
LAYOUT = """
body { font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.3rem; }
.soft, caption { color: var(--soft); } .text { white-space: pre-wrap; font-size: 1.05rem;
  border: 1px solid var(--rule); border-radius: .4rem; padding: 1rem; }
a { color: inherit; text-decoration: none; } a:focus-visible { outline: 2px solid currentColor; }
del { color: var(--old); } ins { background: var(--new); text-decoration: underline; }
mark { background: var(--open); color: inherit; border-bottom: 2px dotted currentColor; }
tr:target { outline: 2px solid currentColor; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; overflow-wrap: normal; }
td, th { border-bottom: 1px solid var(--rule); padding: .35rem .9rem .35rem 0; text-align: left; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.key span { padding: 0 .4rem; } .key ins, .key mark, .key span { color: var(--ink); }
@media (max-width: 40rem) { body { margin: 1rem auto; } .text { padding: .6rem; font-size: 1rem; }
  td, th { padding-right: .5rem; font-size: .85rem; } }
"""


def style() -> str:
    """Write the style sheet."""
    shades = "\n".join(
        f".d{level} {{ background: rgb(var(--doubt) / {level / LEVELS * 0.5:.2f}); }}"
        for level in range(1, LEVELS + 1)
    )
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
        f"{shades}{LAYOUT}"
    )


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
