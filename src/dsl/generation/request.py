"""A request: a model, a sampler, what is known of every text, and a seed.

Every way to draw text makes a `Request` and hands it to `run`: Python, the commands, grids of
samplers, the demo, lm-eval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from dsl._util.config import shown
from dsl.checkpoints.loading import Model
from dsl.conditioning.automaton import IMPOSSIBLE, Automaton, matching
from dsl.conditioning.evidence import Evidence, Hints, given
from dsl.conditioning.guidance import guided
from dsl.conditioning.hints import Hint, Unknown
from dsl.conditioning.padding import padded
from dsl.core.denoiser import Denoiser
from dsl.core.streams import Streams
from dsl.core.types import MASK
from dsl.generation import prompts as known_text
from dsl.generation.options import DrawOptions, Ending, InfillOptions, SampleOptions
from dsl.generation.samples import Sample
from dsl.samplers import registry
from dsl.samplers.base import Sampler, redrawn
from dsl.samplers.specification import read_file, to_data
from dsl.samplers.state import State
from dsl.samplers.strided import Strided
from dsl.version import __version__


@dataclass(frozen=True, eq=False)
class Request:
    """Texts to draw, n of each.

    Sequence i is version i mod n of text i div n. It is the same text whatever batch or process
    draws it.
    """

    model: Model
    sampler: Sampler
    known: Sequence[Hints]
    """What is known of every text: a row of hints, one for each position."""
    n: int = 1
    seed: int = 0
    ending: Ending = "open"
    """What follows every text."""
    form: Automaton | None = None
    """The form of allowed texts; None allows all."""
    guidance: float = 1.0
    """Weight of what is known."""
    batch_size: int = 32
    given: str = ""
    """What is known, as files of samples record it."""

    def __post_init__(self) -> None:
        require_fit(self.model, self.sampler)
        if isinstance(self.sampler, Strided) and self.form is not None:
            raise ValueError("give match or stride, not both: a form is one of a whole text")
        if self.form is not None:
            require_any_order(self.model, "writes texts of an allowed form")
        if self.guidance != 1:
            require_any_order(self.model, "can be guided: guidance hides the given text")
            if not any(not isinstance(hint, Unknown) for row in self.known for hint in row):
                raise ValueError(
                    "guidance needs something to go by, such as a prompt; nothing is given"
                )
        for length in {len(row) for row in self.known}:
            self._require_length(length)
        self._require_passed_on()

    def _require_length(self, length: int) -> None:
        whole = length + known_text.padding_after(self.model, length, self.ending)
        if isinstance(self.sampler, Strided):
            whole = min(whole, self.sampler.window)
        self.model.require_length(whole)

    def _require_passed_on(self) -> None:
        """Refuse a sampler that asks what the wrappers around the network cannot answer."""
        reasons = {
            "match is for samplers of masks and tokens": self.form is not None,
            "guidance is for samplers of masks and continuous states": self.guidance != 1,
            "unknown text can follow only what masked and continuous samplers draw (say that the "
            "document ends here, or stays open: --ending here, --ending open)": any(
                known_text.padding_after(self.model, len(row), self.ending) for row in self.known
            ),
        }
        wrapped = [reason for reason, applies in reasons.items() if applies]
        if not wrapped:
            return
        denoiser = self._denoiser(*self._start(self.known[:1]), len(self.known[0]))
        asks = self.sampler.asks
        masked = asks in Denoiser.__mro__
        if not isinstance(denoiser, asks) or (self.form is not None and not masked):
            raise ValueError(f"{wrapped[0]}; this sampler asks a {asks.__name__}: {_line(asks)}")

    def __len__(self) -> int:
        return len(self.known) * self.n

    @property
    def length(self) -> int | None:
        """Tokens in a sequence; None if texts differ in length."""
        lengths = {len(row) for row in self.known}
        return lengths.pop() if len(lengths) == 1 else None

    def batches(self, indices: Sequence[int] | None = None) -> Iterator[Batch]:
        """Set out with all sequences or with those of some indices, in batches of one length."""
        chosen = range(len(self)) if indices is None else indices
        for begin in range(0, len(chosen), self.batch_size):
            window = chosen[begin : begin + self.batch_size]
            # neighbours only: texts are printed in order, as soon as they are drawn
            for length, group in groupby(window, lambda i: len(self.known[i // self.n])):
                yield self._batch(tuple(group), length)

    def _batch(self, indices: tuple[int, ...], length: int) -> Batch:
        start, hints = self._start([self.known[i // self.n] for i in indices])
        denoiser = self._denoiser(start, hints, length)
        streams = Streams.derive(self.seed, indices, device=self.model.device)
        states = self.sampler.steps(denoiser, start, generator=streams)
        return Batch(self, indices, denoiser, start, states)

    def _start(self, rows: Sequence[Hints]) -> tuple[State, Evidence | None]:
        """Return pinned tokens as a state, and what is known of the others as evidence."""
        device = self.model.device
        if all(isinstance(hint, Unknown) for row in rows for hint in row):
            return State.start(torch.full((len(rows), len(rows[0])), MASK, device=device)), None
        found = Evidence.of(rows, self.model.denoiser).to(device)
        return State.start(found.pinned), None if found.e is None else found.soft

    def _denoiser(self, start: State, hints: Evidence | None, length: int) -> Any:
        """Wrap the network: padding behind it, evidence, guidance and form around it."""
        after = known_text.padding_after(self.model, length, self.ending)
        network = padded(self.model.denoiser, after)
        denoiser = network if hints is None else given(network, hints)
        if self.guidance != 1:
            known = Evidence(start.tokens) if hints is None else replace(hints, pinned=start.tokens)
            denoiser = guided(network, known, self.guidance)
        return denoiser if self.form is None else matching(denoiser, self.form, start.tokens)

    def about(self, command: str) -> dict[str, Any]:
        """Describe the request: enough to repeat it, and to tell two requests apart."""
        return {
            "dsl": __version__,
            "command": command,
            "model": self.model.name,
            "weights": self.model.digest,
            "sampler": to_data(self.sampler),
            "length": self.length,
            "seed": self.seed,
            "given": self.given,
        }


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences that are drawn side by side."""

    request: Request
    indices: Sequence[int]
    denoiser: Any
    """What the sampler asks: the network and its wrappers."""
    start: State
    states: Iterator[State]

    def finish(self, state: State, seconds: float) -> list[Sample]:
        """Read the sequences from the last state."""
        model, form = self.request.model, self.request.form
        if (state.tokens == MASK).any():
            raise ValueError("the sampler leaves tokens masked; it must end with a Commit")
        if form is not None and not form.accepts(state.tokens).all():
            raise ValueError(IMPOSSIBLE)
        each = seconds / len(self.indices)
        rows = zip(
            self.indices,
            state.tokens.tolist(),
            _given(self.start, model.end),
            state.nfe.tolist(),
            strict=True,
        )
        return [
            Sample(i, model.decode(model.document(row, known=known)), row, nfe, each)
            for i, row, known, nfe in rows
        ]


def _given(start: State, end: int | None) -> list[int]:
    """Count the tokens of each sequence up to the last that was given and does not end it."""
    pinned = start.tokens != MASK if end is None else (start.tokens != MASK) & (start.tokens != end)
    places = torch.arange(1, pinned.shape[1] + 1, device=pinned.device)
    found: list[int] = (pinned * places).amax(dim=1).tolist()
    return found


def model_length(options: SampleOptions, hints: Any = None) -> int | None:
    """Return the length to load an oracle of any length with; None if nothing determines it."""
    if options.length is not None and options.stride is None:
        return options.length
    return None if hints is None else len(known_text.hint_rows(hints)[0])


def completion(
    model: Model,
    options: SampleOptions,
    *,
    sampler: Sampler | None = None,
    prompts: Sequence[str] | None = None,
    hints: Any = None,
) -> Request:
    """Request sequences that begin and end with given texts, or follow hints.

    Args:
        model: The model.
        options: Everything else.
        sampler: A sampler in place of the one that the options name.
        prompts: Several beginnings in place of `options.prompt`; n sequences for each.
        hints: A hint for each position, in place of prompt and suffix: one list for all
            sequences, or one list for each. `prompts.read_hints` has the plain forms.
    """
    options.check()
    known = None if hints is None else known_text.read_hints(model, hints)
    if known is not None and (options.prompt or options.suffix or prompts):
        raise ValueError("give a prompt or hints, not both: hints can hold Known tokens")
    length = model.length if options.length is None else options.length
    n = options.n
    if known is not None:
        length, n = _hinted(known, options)
    made = _strided(_sampler(options, sampler), model, length, options.stride)
    texts = [options.prompt] if prompts is None else list(prompts)
    if known is None:
        known = [known_text.prompted(model, text, length, options.suffix) for text in texts]
    return Request(
        model,
        made,
        known,
        n,
        options.seed,
        form=None if options.match is None else allowed(model, options.match),
        guidance=options.guidance,
        batch_size=options.batch_size,
        given=_described(options, known, None if hints is not None else texts, prompts is not None),
    )


def infilling(
    model: Model,
    texts: Sequence[str],
    options: InfillOptions,
    *,
    sampler: Sampler | None = None,
) -> Request:
    """Request texts whose gaps are filled; an error names the line of its text."""
    options.check()
    rows: list[list[Hint]] = []
    for number, text in enumerate(texts, 1):
        try:
            rows.append(known_text.ended(model, known_text.parse_gaps(model, text), options.ending))
            length = len(rows[-1])
            after = known_text.padding_after(model, length, options.ending)
            model.require_length(length + after)
        except ValueError as error:
            where = f"line {number}: " if len(texts) > 1 else ""
            raise ValueError(f"{where}{error}") from error
    shown = [f"{text}[…]" for text in texts] if options.ending == "open" else list(texts)
    return Request(
        model,
        _sampler(options, sampler),
        rows,
        options.n,
        options.seed,
        options.ending,
        guidance=options.guidance,
        batch_size=options.batch_size,
        given=_recorded(shown, len(texts) > 1, options.guidance),
    )


def _sampler(options: DrawOptions, sampler: Sampler | None) -> Sampler:
    """Return the sampler of the options, with their temperature and top-p."""
    if sampler is None:
        sampler = named_sampler(options.sampler)
    return redrawn(sampler, temperature=options.temperature, top_p=options.top_p)


def named_sampler(name: str) -> Sampler:
    """Build a sampler from its short form, or from a file with its whole specification."""
    if isinstance(name, str) and name.endswith((".yaml", ".yml", ".json")):
        return read_file(Path(name))
    return registry.sampler(name)


def _strided(sampler: Sampler, model: Model, length: int, stride: int | None) -> Sampler:
    """Draw texts longer than the model in strides, if asked; otherwise refuse them."""
    if isinstance(sampler, Strided):
        if stride is not None:
            raise ValueError(
                f"the sampler has a stride of its own, {sampler.stride}: give no other"
            )
        return sampler
    if stride is None:
        try:
            model.require_length(length)
        except ValueError as error:
            hint = "; a stride (--stride N) writes longer ones" if length > model.length else ""
            raise ValueError(f"{error}{hint}") from None
        return sampler
    return Strided(sampler, model.length, stride)


def _hinted(rows: Sequence[Hints], options: SampleOptions) -> tuple[int, int]:
    """Return length and number of versions of hinted sequences."""
    if len(rows) not in (1, options.n):
        raise ValueError(f"hints must describe one sequence or all {options.n}, got {len(rows)}")
    if options.length is not None and options.length != len(rows[0]):
        raise ValueError(f"length {options.length} differs from the {len(rows[0])} hints")
    return len(rows[0]), options.n if len(rows) == 1 else 1


def _described(
    options: SampleOptions, rows: Sequence[Hints], texts: Sequence[str] | None, many: bool
) -> str:
    """Name what is known: a prompt itself, or a hash of many prompts or of hints."""
    form = "" if options.match is None else f" matching {options.match}"
    if texts is None:
        hashed = _hash([repr(row) for row in rows])
        return f"hints {hashed}{form}{_weight(options.guidance)}"
    gap = "…" if many else sum(isinstance(hint, Unknown) for hint in rows[0])
    known = [f"{text}[{gap}]{options.suffix}{form}" for text in texts]
    return _recorded(known, many, options.guidance)


def _recorded(texts: Sequence[str], many: bool, guidance: float) -> str:
    named = f"{len(texts)} texts {_hash(texts)}" if many else texts[0]
    return f"{named}{_weight(guidance)}"


def _weight(guidance: float) -> str:
    return "" if guidance == 1 else f", counted {guidance:g} times"


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def allowed(model: Model, pattern: str) -> Automaton:
    """Compile a regular expression over the tokens of a model; a document's end may follow it."""
    require_any_order(model, "writes texts of an allowed form")
    return Automaton.of(pattern, model.pieces, model.end if model.documents else None)


def require_fit(model: Model, sampler: Sampler) -> None:
    """Refuse a sampler that asks what the model cannot answer, naming those that fit."""
    if not isinstance(sampler, Sampler) or isinstance(sampler, type):
        raise ValueError(f"sampler must be a name or a sampler, got {shown(sampler)}")
    if not model.can_answer(sampler.asks):
        fitting = ", ".join(registry.serving(model.protocol))
        raise ValueError(
            f"{model.name} (family {model.family.name}) does not fit this sampler, which asks a "
            f"{sampler.asks.__name__}: {_line(sampler.asks)} Samplers that fit: {fitting}"
        )


def require_any_order(model: Model, use: str) -> None:
    """Refuse a model that cannot predict masked tokens anywhere."""
    if not model.can_answer(Denoiser):
        raise ValueError(
            f"{model.name} is of family {model.family.name}: only a model that predicts masked "
            f"tokens anywhere {use}"
        )


def _line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]
