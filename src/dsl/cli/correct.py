"""`dsl correct`: correct noisy text, with a probability for every change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from dsl._util.files import require_place
from dsl._util.validate import SEEDS, within
from dsl._util.words import counted
from dsl.cli.options import parse

if TYPE_CHECKING:
    from dsl.apps.correct.reading import Correction, Reading

STANDARD_INPUT = Path("-")
SUFFIXES = {"text": ".txt", "json": ".json", "html": ".html", "diff": ".diff"}
"""Suffixes that --to adds to the names of several files."""


@dataclass(frozen=True)
class Options:
    """Correct noisy text: OCR output, speech transcripts, or typing errors.

    FILES are plain text, text with confidences in braces ("the {modem|0.4} world"), JSON lists of
    words or characters with confidences (including Whisper's), or Tesseract hOCR and TSV; - is
    standard input. Uncertain characters are weighed against the language model, certain ones are
    kept, and gaps are filled. Markup, line breaks, spacing and characters outside the model's
    vocabulary are preserved.

    With --fit, nothing is corrected: the confidences in FILES are calibrated against the true text,
    and the calibration is written to --out, for use with --trust.

    Example: dsl correct page.hocr --to diff
    """

    files: tyro.conf.Positional[tuple[Path, ...]] = (STANDARD_INPUT,)
    """Input files."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Output file, or a directory for several FILES. Default: standard output."""
    to: Literal["file", "text", "json", "diff", "html"] = "file"
    """Output: the corrected file in its own format, its text alone, JSON with every change, a
    readable diff, or an HTML page with uncertain characters shaded."""
    choices: ClassVar[dict[str, str]] = {"Formats": "dsl.formats"}
    format: str | None = None
    """The format of FILES; by default it is recognised."""
    gap: str | None = None
    """Character that marks an illegible character in plain text. Default: none."""
    model: str = "english-tiny"
    """Character-level DSL model: bundled, checkpoint directory, or hub id."""
    mode: Literal["marginal", "surest", "sample"] = "surest"
    """Decoding: all positions from one posterior (fastest), most confident first, or sampled."""
    threshold: float = 0.5
    """Make a change if its probability exceeds this; 1 disables all changes."""
    budget: int | None = None
    """Maximum number of changes per file; the most probable are made. Default: no limit."""
    abstain: bool = False
    """Mark changes below the threshold instead of ignoring them."""
    lengths: bool = True
    """Allow for lost, added, split (m read as rn) or merged characters."""
    rate: float = 0.03
    """Assumed share of wrong characters where the input has no confidences."""
    confusions: Literal["none", "ocr", "keyboard"] = "none"
    """Confusion model: any character for any other, look-alikes, or neighbouring keys."""
    trust: Path | None = None
    """Calibration of the confidences, a file written by --fit. Default: the measured calibration
    for Tesseract, otherwise the confidences as they are."""
    fit: Path | None = None
    """True text of FILES; fits a calibration instead of correcting."""
    seed: int = 0
    """Random seed for --mode sample."""
    device: str = "cpu"
    """Device of the network, such as cuda:0."""

    def check(self) -> None:
        """Reject invalid values before any work is done."""
        within(self, threshold=(0, 1), rate=(0, 1), seed=SEEDS, budget=(0, 10**9))
        if self.gap is not None and len(self.gap) != 1:
            raise ValueError(f"--gap must be one character, got {self.gap!r}")
        if self.fit is not None and (self.out is None or len(self.files) > 1):
            raise ValueError("--fit needs exactly one input file, and --out for the calibration")
        if len(self.files) > 1 and self.to != "text" and self.out is None:
            raise ValueError("several files need --out with an output directory")
        for path in self.files:
            if path != STANDARD_INPUT and not path.is_file():
                raise FileNotFoundError(f"file not found: {path}")
        if self.out is not None:
            require_place(self.out, directory=len(self.files) > 1)
        names = [path.name for path in self.files]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"several input files have the name {doubled.pop()!r}")
        inputs = [path for path in (*self.files, self.fit) if path not in (None, STANDARD_INPUT)]
        for target in [] if self.out is None else map(self.target, self.files):
            if target.exists() and any(target.samefile(path) for path in inputs):
                raise ValueError(f"{target} is an input file: choose another --out")

    def target(self, path: Path) -> Path:
        """Return the output file of an input file."""
        assert self.out is not None
        if len(self.files) == 1:
            return self.out
        return self.out / f"{path.name}{SUFFIXES.get(self.to, '')}"


def main(arguments: Sequence[str]) -> None:
    """Read, correct and write every file, or fit a calibration."""
    options = parse(Options, "correct", arguments)
    if options.fit is not None:
        _fit(options)
        return
    from dsl.apps.correct.corrector import Policy, correct
    from dsl.apps.correct.errors import NAMED, ErrorModel
    from dsl.apps.correct.lengths import LengthErrors
    from dsl.apps.correct.trust import Trust
    from dsl.checkpoints import load
    from dsl.cli.progress import progress

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


def _read(path: Path, options: Options) -> tuple[str, Reading]:
    from dsl.apps.correct.formats import decode, encoding, plain, read_file

    stdin = path == STANDARD_INPUT
    data = sys.stdin.buffer.read() if stdin else path.read_bytes()
    if options.gap is not None:
        return encoding(data), plain.read(decode(data, str(path)), gap=options.gap)
    return encoding(data), read_file(None if stdin else path, data, options.format)


def _write(made: Correction, path: Path, encoding: str, options: Options) -> None:
    from rich.console import Console

    from dsl._util import files
    from dsl.apps.correct.formats import FORMATS
    from dsl.apps.correct.render import as_diff, as_html, as_json

    if options.to == "diff" and options.out is None:
        Console().print(as_diff(made), soft_wrap=True)
        return
    text = {
        "file": lambda: made.file(FORMATS[made.reading.kind].escape),
        "text": lambda: made.text,
        "json": lambda: as_json(made) + "\n",
        "html": lambda: as_html(made),
        "diff": lambda: as_diff(made).plain,
    }[options.to]()
    data = text.encode(encoding if options.to == "file" else "utf-8")
    if options.out is None:
        sys.stdout.buffer.write(data)
        return
    target = options.target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(target) as part:
        part.write_bytes(data)
    changes = counted(len(made.decided), "change")
    characters = counted(len(made.reading.symbols), "character")
    print(f"{target}: {changes} in {characters}", file=sys.stderr)


def _fit(options: Options) -> None:
    from dsl.apps.correct.formats import decode
    from dsl.apps.correct.trust import fit, labelled

    assert options.fit is not None and options.out is not None  # checked above
    _, reading = _read(options.files[0], options)
    if not options.fit.is_file():
        raise FileNotFoundError(f"file not found: {options.fit}")
    sample = labelled(reading, decode(options.fit.read_bytes(), str(options.fit)))
    found = fit(sample)
    found.write(options.out)
    right = sum(was for _, was in sample) / len(sample)
    print(
        f"{options.out}: {right:.1%} of {len(sample):,} characters are right; a stated 50% means "
        f"{found(0.5):.1%}, a stated 90% {found(0.9):.1%}, a stated 100% {found(1.0):.1%}"
    )
