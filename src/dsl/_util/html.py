"""The HTML pages of all programs: one style sheet, for light and dark screens, and one frame."""

from __future__ import annotations

from html import escape

COLOURS = {
    "page": ("#ffffff", "#14171c"),
    "ink": ("#1f2328", "#e6e8eb"),
    "soft": ("#57606a", "#a9b1bb"),
    "rule": ("#d0d7de", "#3a414b"),
    "old": ("#a3150d", "#ff9d94"),
    "new": ("#d5f0dc", "#1d4a2c"),
    "open": ("#fde3b0", "#5a4208"),
    "curve1": ("#4053d3", "#98a6ff"),
    "curve2": ("#8a6800", "#ddb310"),
    "curve3": ("#b51d14", "#ff8379"),
    "curve4": ("#007499", "#00beff"),
    "curve5": ("#00743c", "#00c268"),
    "curve6": ("#b01674", "#fb82c8"),
}
"""Names of colours, on a light and on a dark page."""
DOUBT = ("230 120 0", "255 170 60")
"""The colour that shades doubtful characters, as red, green and blue."""
SHADES = 10
"""Shades of doubt: the classes d1 to d10."""

LAYOUT = """
body { font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin: 2rem 0 0; font-size: 1.05rem; } h3 + p { margin-top: .2rem; }
small, .soft, figcaption, caption { color: var(--soft); } figcaption, caption { font-size: .9rem; }
.text { white-space: pre-wrap; }
.box { border: 1px solid var(--rule); border-radius: .4rem; padding: 1rem; font-size: 1.05rem; }
a { color: inherit; text-decoration: none; } a:focus-visible { outline: 2px solid currentColor; }
del { color: var(--old); } ins { background: var(--new); text-decoration: underline; }
mark { background: var(--open); color: inherit; border-bottom: 2px dotted currentColor; }
tr:target, .scroll:focus-visible { outline: 2px solid currentColor; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .4rem; } th small { font-weight: normal; }
td, th { border-bottom: 1px solid var(--rule); padding: .35rem .9rem .35rem 0; text-align: left;
  vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
.key span { padding: 0 .4rem; } .key ins, .key mark, .key span { color: var(--ink); }
figure { margin: 1rem 0; } svg { display: block; width: 100%; height: auto; }
.wide svg { min-width: 42rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: 1rem; }
@media (max-width: 40rem) { body { margin: 1rem auto; } .box { padding: .6rem; font-size: 1rem; }
  td, th { padding-right: .35rem; font-size: .8rem; } }
"""


def style() -> str:
    """Return the style sheet."""
    light, dark = (
        " ".join(f"--{name}: {pair[theme]};" for name, pair in {**COLOURS, "doubt": DOUBT}.items())
        for theme in (0, 1)
    )
    shades = "\n".join(
        f".d{level} {{ background: rgb(var(--doubt) / {level / SHADES * 0.5:.2f}); }}"
        for level in range(1, SHADES + 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{shades}{LAYOUT}"
    )


def page(title: str, body: str) -> str:
    """Return a whole page that loads nothing else."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style()}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
