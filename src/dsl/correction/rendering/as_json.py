"""A correction as JSON.

{"model": "english-tiny",
"text": the corrected text, without markup; a gap that stayed one is `_`,
"characters": how many were read,
"doubtful": how many of them are more likely wrong than right,
"edits": [{"begin": 12, "end": 13,          where it stands in the file, in characters from 0
"line": 1, "column": 13,         the same, as people count
"old": "m", "new": "rn",
"probability": 0.93,             of `new`, given everything that was read
"alternatives": [{"text": "m", "probability": 0.06}],
"decided": true}]}               false: the text was left as it was read
"""

from __future__ import annotations

import json
from typing import Any

from dsl.correction.formats.places import places
from dsl.correction.result import Correction

DOUBTFUL = 0.5
"""From this probability on that something else was written, a character is called doubtful."""


def record(correction: Correction) -> dict[str, Any]:
    """Return a correction as plain data."""
    spans = [correction.span(edit) for edit in correction.edits]
    where = places(correction.reading.source, (begin for begin, _ in spans))
    return {
        "model": correction.model,
        "text": correction.text,
        "characters": len(correction.reading.symbols),
        "doubtful": sum(doubt > DOUBTFUL for doubt in correction.doubt),
        "edits": [
            {
                "begin": begin,
                "end": end,
                "line": line,
                "column": column,
                "old": edit.old,
                "new": edit.new,
                "probability": edit.probability,
                "alternatives": [{"text": t, "probability": p} for t, p in edit.alternatives],
                "lengths": [{"longer": n, "probability": p} for n, p in edit.lengths],
                "decided": edit.decided,
            }
            for edit, (begin, end), (line, column) in zip(
                correction.edits, spans, where, strict=True
            )
        ],
    }


def render(correction: Correction) -> str:
    """Write a correction as JSON."""
    return json.dumps(record(correction), indent=2, ensure_ascii=False, allow_nan=False)
