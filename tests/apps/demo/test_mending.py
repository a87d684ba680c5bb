from __future__ import annotations

import re
from html import unescape

from dsl.apps.demo.mending import Mended
from dsl.apps.demo.page import section

READ, MENDED = "he_l<", "hel o"
MENDED_ONE = Mended(
    READ,
    [0.98, 0.98, 0.0, 0.98, 0.5],
    MENDED,
    [0.999, 1.0, 0.6, 0.25, 0.7],
    [[("x", 0.001)], [], [("p", 0.3), ("r", 0.1)], [(" ", 0.75)], [("a", 0.2), ("<", 0.1)]],
)


def column(html: str, kind: str) -> str:
    return "".join(map(unescape, re.findall(rf'<span class="{kind}"[^>]*>([^<]*)</span>', html)))


def test_every_letter_is_shown_above_and_below_in_order() -> None:
    html = section(MENDED_ONE, "")
    assert column(html, "was") == READ
    assert column(html, "now") == MENDED


def test_the_table_lists_the_changes_with_their_numbers() -> None:
    assert MENDED_ONE.changes() == [2, 3, 4]
    rows = re.findall(r"<tr>(.*?)</tr>", section(MENDED_ONE, ""))[1:]
    plain = [
        [unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in rows
    ]
    assert plain == [
        ["3", "gap", "–", "l", "60%", "p 30%, r 10%"],
        ["4", "l", "98%", "space", "25%", "space 75%"],
        ["5", "<", "50%", "o", "70%", "a 20%, < 10%"],
    ]


def test_what_was_written_is_held_against_what_was_read() -> None:
    assert "Right" not in section(MENDED_ONE, "")
    known = Mended(READ, [1.0] * 5, MENDED, [1.0] * 5, [[]] * 5)
    assert "4 of 5 letters; 3 before mending" in section(known, "hello")
