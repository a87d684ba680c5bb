"""A request: a model, a sampler, hints about every text, and a seed.

Every way to draw text makes a `Request` and passes it to `run`: Python, the commands, comparisons,
the demo, lm-eval.
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

    Sequence i is version i mod n of text i div n. It does not depend on the batch or the process
    that draws it.
    """

    model: Model
    sampler: Sampler
    known: Sequence[Hints]
    """A row of hints for every text, one for each position."""
    n: int = 1
    seed: int = 0
    ending: Ending = "open"
    """What follows every text."""
    form: Automaton | None = None
    """The allowed texts; None allows all."""
    guidance: float = 1.0
    """Weight of the hints."""
    batch_size: int = 32
    given: str = ""
    """The hints as samples files record them."""

    def __post_init__(self) -> None:
        require_fit(self.model, self.sampler)
        if isinstance(self.sampler, Strided) and self.form is not None:
            raise ValueError("give match or stride, not both: match applies to a whole text")
        if self.form is not None:
            require_any_order(self.model, "can match a pattern")
        if self.guidance != 1:
            require_any_order(self.model, "can be guided, because guidance hides the given text")
            if not any(not isinstance(hint, Unknown) for row in self.known for hint in row):
                raise ValueError("guidance needs a prompt or hints, got neither")
        for length in {len(row) for row in self.known}:
            self._require_length(length)
        self._require_passed_on()

    def _require_length(self, length: int) -> None:
        whole = length + known_text.padding_after(self.model, length, self.ending)
        if isinstance(self.sampler, Strided):
            whole = min(whole, self.sampler.window)
        self.model.require_length(whole)

    def _require_passed_on(self) -> None:
        """Reject a sampler whose protocol is lost in the wrappers around the network."""
        reasons = {
            "match needs a masked sampler": self.form is not None,
            "guidance needs a masked or continuous sampler": self.guidance != 1,
            "an unknown ending needs a masked or continuous sampler (--ending here and --ending "
            "open do not)": any(
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
        """Yield batches of all sequences, or of some indices; each batch has one length."""
        chosen = range(len(self)) if indices is None else indices
        for begin in range(0, len(chosen), self.batch_size):
            window = chosen[begin : begin + self.batch_size]
            # only neighbours share a batch, because texts are printed in order
            for length, group in groupby(window, lambda i: len(self.known[i // self.n])):
                yield self._batch(tuple(group), length)

    def _batch(self, indices: tuple[int, ...], length: int) -> Batch:
        start, hints = self._start([self.known[i // self.n] for i in indices])
        denoiser = self._denoiser(start, hints, length)
        streams = Streams.derive(self.seed, indices, device=self.model.device)
        states = self.sampler.steps(denoiser, start, generator=streams)
        return Batch(self, indices, denoiser, start, states)

    def _start(self, rows: Sequence[Hints]) -> tuple[State, Evidence | None]:
        """Return pinned tokens as a state, and the other hints as evidence."""
        device = self.model.device
        if all(isinstance(hint, Unknown) for row in rows for hint in row):
            return State.start(torch.full((len(rows), len(rows[0])), MASK, device=device)), None
        found = Evidence.of(rows, self.model.denoiser).to(device)
        return State.start(found.pinned), None if found.e is None else found.soft

    def _denoiser(self, start: State, hints: Evidence | None, length: int) -> Any:
        """Wrap the network with padding, evidence, guidance and allowed forms."""
        after = known_text.padding_after(self.model, length, self.ending)
        network = padded(self.model.denoiser, after)
        denoiser = network if hints is None else given(network, hints)
        if self.guidance != 1:
            known = Evidence(start.tokens) if hints is None else replace(hints, pinned=start.tokens)
            denoiser = guided(network, known, self.guidance)
        return denoiser if self.form is None else matching(denoiser, self.form, start.tokens)

    def about(self, command: str) -> dict[str, Any]:
        """Describe the request well enough to repeat it and to tell two requests apart."""
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
    """The network with its wrappers."""
    start: State
    states: Iterator[State]

    def finish(self, state: State, seconds: float) -> list[Sample]:
        """Return the sequences of the last state."""
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
    """Return the length of each sequence up to its last given token that is not an end."""
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
    """Return a request for sequences with a prompt and a suffix, or with hints.

    Args:
        model: The model.
        options: All other options.
        sampler: Replaces the sampler named in the options.
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
    """Return a request that fills the gaps of texts; errors name the line of the text."""
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
    """Return the sampler with the temperature and top-p of the options."""
    if sampler is None:
        sampler = named_sampler(options.sampler)
    return redrawn(sampler, temperature=options.temperature, top_p=options.top_p)


def named_sampler(name: str) -> Sampler:
    """Build a sampler from its short form, or from a file with its full specification."""
    if isinstance(name, str) and name.endswith((".yaml", ".yml", ".json")):
        return read_file(Path(name))
    return registry.sampler(name)


def _strided(sampler: Sampler, model: Model, length: int, stride: int | None) -> Sampler:
    """Wrap the sampler for texts longer than the model; without a stride they are an error."""
    if isinstance(sampler, Strided):
        if stride is not None:
            raise ValueError(
                f"the sampler has a stride already, {sampler.stride}: leave stride out"
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
    """Compile a regular expression over the tokens of a model; an end token may follow."""
    require_any_order(model, "can match a pattern")
    return Automaton.of(pattern, model.pieces, model.end if model.documents else None)


def require_fit(model: Model, sampler: Sampler) -> None:
    """Raise an error that lists the fitting samplers if the model does not fit this one."""
    if not isinstance(sampler, Sampler) or isinstance(sampler, type):
        raise ValueError(f"sampler must be a name or a sampler, got {shown(sampler)}")
    if not model.can_answer(sampler.asks):
        fitting = ", ".join(registry.serving(model.protocol))
        raise ValueError(
            f"{model.name} (family {model.family.name}) does not fit this sampler, which asks a "
            f"{sampler.asks.__name__}: {_line(sampler.asks)} Samplers that fit: {fitting}"
        )


def require_any_order(model: Model, use: str) -> None:
    """Raise an error for a model that cannot predict masked tokens in any order."""
    if not model.can_answer(Denoiser):
        raise ValueError(
            f"{model.name} is of family {model.family.name}: only a model that predicts masked "
            f"tokens in any order {use}"
        )


def _line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]
