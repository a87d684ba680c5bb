"""What is taken for what: letters that look alike to a recogniser, or keys that are neighbours."""

from __future__ import annotations

from collections.abc import Mapping

LOOK_ALIKE = (
    "l1I|!i", "o0OcQ", "ceo", "ae", "rnh", "hb", "uvn", "vy", "ft", "tf", "S5s", "B8", "Z2z", "g9q",
    "G6C", "D0O", "nu", "mn", ".,", ":;", "'`\"", "-_", "ij", "xX", "kK", "wW", "pP", "MN", "EF",
    "VY", "UV", "PR", "TI", "yv", "da", "bh", "1l", "7T",
)  # fmt: skip
"""Groups of characters that recognisers take for each other."""
ROWS = ("1234567890-", "qwertyuiop[", "asdfghjkl;'", "zxcvbnm,./")
"""The keys of an English keyboard, each row half a key to the right of the one above."""

Confusions = Mapping[str, Mapping[str, float]]


def recogniser() -> Confusions:
    """Return what may have been written where a recogniser read a character."""
    found: dict[str, dict[str, float]] = {}
    for group in LOOK_ALIKE:
        for read in group:
            for written in group:
                if written != read:
                    row = found.setdefault(read, {})
                    row[written] = row.get(written, 0.0) + 1.0
    return found


def keyboard() -> Confusions:
    """Return what may have been meant where a key was pressed: its neighbours, in its case."""
    places = {key: (x + y / 2, y) for y, row in enumerate(ROWS) for x, key in enumerate(row)}
    found: dict[str, dict[str, float]] = {}
    for pressed, (x, y) in places.items():
        near = {
            key: 1.0
            for key, (u, v) in places.items()
            if key != pressed and abs(u - x) <= 1 and abs(v - y) <= 1
        }
        found[pressed] = near
        if pressed.isalpha():
            found[pressed.upper()] = {key.upper(): 1.0 for key in near if key.isalpha()}
    return found


NAMED = {"ocr": recogniser, "keyboard": keyboard}
