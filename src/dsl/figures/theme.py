"""The looks of the report: one set of colours for light pages, one for dark, none for more."""

from __future__ import annotations

from collections.abc import Mapping

from dsl.figures.chart import COLOURS, ON_DARK

LIGHT = {
    "page": "#ffffff",
    "ink": "#1f2328",
    "soft": "#57606a",
    "rule": "#d0d7de",
    "gap": "#d5f0dc",
    "mended": "#fde3b0",
    "wrong": "#a3150d",
}
DARK = {
    "page": "#14171c",
    "ink": "#e6e8eb",
    "soft": "#a9b1bb",
    "rule": "#3a414b",
    "gap": "#1d4a2c",
    "mended": "#5a4208",
    "wrong": "#ff9d94",
}

LAYOUT = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin: 2rem 0 0; font-size: 1.05rem; } h3 + p { margin-top: .2rem; }
small, .soft, figcaption, caption { color: var(--soft); } figcaption, caption { font-size: .9rem; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .4rem; }
td, th { border-bottom: 1px solid var(--rule); padding: .35rem .9rem .35rem 0; text-align: left;
  vertical-align: top; }
td:last-child, th:last-child { padding-right: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; } td.n, .nowrap { white-space: nowrap; }
th small { font-weight: normal; } .hint { display: none; }
.text, code { font-family: ui-monospace, monospace; font-size: .9rem; }
.text { white-space: pre-wrap; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1rem; } dd { margin: 0; }
dt { color: var(--soft); }
figure { margin: 1rem 0; } svg { display: block; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid currentColor; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: 1rem; } .charts svg { width: 100%; height: auto; }
.letters { font-family: ui-monospace, monospace; line-height: 1.5rem; }
.word, .cell { display: inline-block; vertical-align: top; } .cell { width: 1.15rem; }
.cell > * { display: block; height: 1.5rem; text-align: center; white-space: pre; }
.cell small { font-size: .65rem; line-height: 1rem; font-family: system-ui, sans-serif; }
.key { display: inline-flex; align-items: center; gap: .4rem; margin-right: .6rem; }
.bar { display: inline-block; width: 6rem; height: .8rem; border: 1px solid var(--rule); }
b.gap { background: var(--gap); } b.mended { background: var(--mended); }
b.gap, b.mended { text-decoration: underline; } s { color: var(--wrong); }
.badge { fill: var(--page); }
@media (max-width: 40rem) { body { margin: 1rem auto; } dl { display: block; }
  dd { margin-bottom: .5rem; } td, th { padding-right: .35rem; font-size: .8rem; }
  thead th { font-size: .7rem; } td code, td .text { font-size: .8rem; } }
@media (max-width: 62rem) { .hint { display: inline; } }
"""


def style() -> str:
    """Write the style sheet."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n{_curves(COLOURS)}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }}\n"
        f"{_curves(ON_DARK)}}}\n{LAYOUT}"
    )


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _curves(colours: tuple[str, ...]) -> str:
    return "".join(f".curve-{i} {{ stroke: {colour}; }}\n" for i, colour in enumerate(colours))
