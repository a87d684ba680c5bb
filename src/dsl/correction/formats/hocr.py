"""hOCR, the page of a recogniser: words and lines in the markup of the web.

Tesseract writes it; `-c hocr_char_boxes=1` adds the confidence of each character (`x_conf`), else
the word's (`x_wconf`) is that of all its characters, and `-c lstm_choice_mode=2` adds what else a
character might be (`choices.py`). What mode 1 adds, every time step of the network, is passed over.
"""

from __future__ import annotations

import html
import re

from dsl.correction.formats.markup import tokens
from dsl.correction.formats.page import SPACE, Page
from dsl.correction.reading import Reading

NAME = "hocr"
SUFFIXES = frozenset({".hocr", ".html", ".htm", ".xhtml"})
SIGN = re.compile(r"\bocr_page\b|\bocrx_word\b")
BREAKS = str.maketrans({space: f"&#{ord(space)};" for space in SPACE})


def read(source: str) -> Reading:
    """Read the words of a page, or of several."""
    page = Page(source)
    for token in tokens(source):
        page.take(token)
    return page.reading()


def escape(text: str) -> str:
    """Write text as markup does; white space by number, because else it is layout."""
    return html.escape(text).translate(BREAKS)


def recognise(source: str, suffix: str) -> bool:
    """Whether a file is markup with the classes of hOCR, or is called so."""
    if suffix in SUFFIXES:
        return True
    return source.lstrip("\ufeff" + SPACE).startswith("<") and SIGN.search(source) is not None
