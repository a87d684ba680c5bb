"""`dsl correct`: put doubtful text right, and say how sure each change is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dsl.arguments import SEEDS, within
from dsl.cli.options import parse
from dsl.files import require_place

if TYPE_CHECKING:
    from dsl.correction.reading import Reading
    from dsl.correction.result import Correction

STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class CorrectOptions:
    """Correct text that was read with doubt: by a recogniser, by ear, or in haste.

    FILES are plain text, text with confidences in braces ("the {modem|0.4} world"), JSON lists of
    words or characters with confidences (Whisper's too), or Tesseract's hOCR and TSV; - is the
    standard input. What is sure stays, what is doubtful is weighed against what the model knows
    of the language, and what is missing is filled in. Everything else survives as it is: markup,
    line breaks, spacing, characters that the model does not know.

    With --fit, nothing is corrected: the confidences in FILES are compared with the true text, and
    how far they can be believed is written to --out, for --trust.
    """

    files: tyro.conf.Positional[tuple[Path, ...]] = (STANDARD_INPUT,)
    """What was read."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """A file to write to, or for several FILES a directory."""
    to: Literal["file", "text", "json", "diff", "html"] = "file"
    """What is written: the corrected file in its own format, its text alone, JSON with every
    change, a diff for people, or a page with doubtful letters shaded."""
    format: Literal["plain", "inline", "words", "hocr", "tsv"] | None = None
    """The format of FILES, if it shall not be guessed."""
    gap: str | None = None
    """A character that stands for one that could not be made out, in plain text."""
    model: str = "english-tiny"
    """A DSL model of characters: bundled, a checkpoint directory, or a hub id."""
    mode: Literal["marginal", "surest", "sample"] = "surest"
    """How places are decided: all from one posterior (fastest), the surest first, or drawn."""
    threshold: float = 0.5
    """A change is made if it is more probable than this; with 1 nothing is changed."""
    budget: int | None = None
    """The most changes to a file: the most probable ones."""
    abstain: bool = False
    """Mark what falls short of the threshold, instead of leaving it alone."""
    lengths: bool = True
    """Whether characters may have been lost, added, split (m read as rn) or merged."""
    rate: float = 0.03
    """The share of wrong characters where nothing says how sure they are."""
    confusions: Literal["none", "ocr", "keyboard"] = "none"
    """What is taken for what: anything for anything, letters that look alike, neighbouring keys."""
    trust: Path | None = None
    """How far the confidences can be believed: a file that --fit wrote. If none is given, what was
    measured of Tesseract, or what they say."""
    fit: Path | None = None
    """The true text of FILES."""
    seed: int = 0
    """Where random numbers start, for --mode sample."""
    device: str = "cpu"
    """Where the network runs, such as cuda:0."""

    def check(self) -> None:
        """Refuse values that no run can have, before any work."""
        within(self, threshold=(0, 1), rate=(0, 1), seed=SEEDS, budget=(0, 10**9))
        if self.gap is not None and len(self.gap) != 1:
            raise ValueError(f"--gap is one character, got {self.gap!r}")
        if self.fit is not None and (self.out is None or len(self.files) > 1):
            raise ValueError("--fit needs one file, its true text, and --out for what it finds")
        if len(self.files) > 1 and self.to != "text" and self.out is None:
            raise ValueError("several files need --out, a directory to write to")
        for path in self.files:
            if path != STANDARD_INPUT and not path.is_file():
                raise FileNotFoundError(f"there is no file {path}")
        if self.out is not None:
            require_place(self.out, directory=len(self.files) > 1)
        names = [path.name for path in self.files]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two of the files are called {doubled.pop()!r}")


def main(arguments: Sequence[str]) -> None:
    """Read, correct and write every file; or fit."""
    options = parse(CorrectOptions, "correct", arguments)
    if options.fit is not None:
        _fit(options)
        return
    from dsl.cli.progress import progress
    from dsl.correction.confusions import NAMED
    from dsl.correction.correct import Policy, correct
    from dsl.correction.errors import ErrorModel
    from dsl.correction.lengths import LengthErrors
    from dsl.correction.trust import Trust
    from dsl.loading import load

    errors = ErrorModel(
        options.rate,
        None if options.trust is None else Trust.read(options.trust),
        NAMED[options.confusions]() if options.confusions != "none" else {},
    )
    policy = Policy(options.mode, 8, options.threshold, options.budget, options.abstain)
    readings = [(path, *_read(path, options)) for path in options.files]
    model = load(options.model, device=options.device)
    for path, encoding, reading in readings:
        with progress(None, f"correcting {path}") as bar:
            made = correct(
                reading,
                model,
                errors=errors,
                lengths=LengthErrors() if options.lengths else None,
                policy=policy,
                seed=options.seed,
                on_progress=bar.reach,
            )
        _write(made, path, encoding, options)


def _read(path: Path, options: CorrectOptions) -> tuple[str, Reading]:
    from dsl.correction.formats import plain
    from dsl.correction.formats.encoding import decode, encoding
    from dsl.correction.formats.table import read_file

    stdin = path == STANDARD_INPUT
    data = sys.stdin.buffer.read() if stdin else path.read_bytes()
    if options.gap is not None:
        return encoding(data), plain.read(decode(data, str(path)), gap=options.gap)
    return encoding(data), read_file(None if stdin else path, data, options.format)


def _write(made: Correction, path: Path, encoding: str, options: CorrectOptions) -> None:
    from rich.console import Console

    from dsl import files
    from dsl.correction.formats.table import by_name
    from dsl.correction.rendering import as_diff, as_html, as_json

    if options.to == "diff" and options.out is None:
        Console().print(as_diff.render(made), soft_wrap=True)
        return
    text = {
        "file": lambda: made.file(by_name(made.reading.kind).escape),
        "text": lambda: made.text,
        "json": lambda: as_json.render(made) + "\n",
        "html": lambda: as_html.render(made),
        "diff": lambda: as_diff.render(made).plain,
    }[options.to]()
    data = text.encode(encoding if options.to == "file" else "utf-8")
    if options.out is None:
        sys.stdout.buffer.write(data)
        return
    suffix = {"text": ".txt", "json": ".json", "html": ".html", "diff": ".diff"}.get(options.to)
    name = path.name if suffix is None else f"{path.name}{suffix}"
    target = options.out / name if len(options.files) > 1 else options.out
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(target) as part:
        part.write_bytes(data)
    share = f"{len(made.decided):,} changes in {len(made.reading.symbols):,} characters"
    print(f"{target}: {share}", file=sys.stderr)


def _fit(options: CorrectOptions) -> None:
    from dsl.correction.formats.encoding import decode
    from dsl.correction.trust import fit, labelled

    assert options.fit is not None and options.out is not None  # checked above
    _, reading = _read(options.files[0], options)
    if not options.fit.is_file():
        raise FileNotFoundError(f"there is no file {options.fit}")
    sample = labelled(reading, decode(options.fit.read_bytes(), str(options.fit)))
    found = fit(sample)
    found.write(options.out)
    right = sum(was for _, was in sample) / len(sample)
    print(
        f"{options.out}: of {len(sample):,} characters {right:.1%} were right; a stated 50% means "
        f"{found(0.5):.1%}, a stated 90% {found(0.9):.1%}, a stated 100% {found(1.0):.1%}"
    )
