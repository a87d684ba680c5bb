"""Constrain texts to a regular expression, compiled to an automaton over tokens.

The automaton accepts or rejects whole texts. For position i it gives the likelihood
ℓ_i(v) = log P(allowed | token v at i, the known tokens), with unknown tokens drawn independently
from their posteriors. Adding ℓ to the logits is Bayes' rule, exact if the other tokens are
independent or known. Sampling one token at a time always gives an allowed text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl._util.extras import require
from dsl.conditioning.steering import Steered
from dsl.core.denoiser import Denoiser
from dsl.core.types import MASK, Logits, Tokens

DEAD = -1
"""The state from which no allowed text can be reached."""
MOST_STATES = 2_000
"""A larger automaton would be slower than the network."""
MOST_CHARACTERS = 4_000
"""Characters of a pattern."""
LARGER = 4
"""How many times larger automata of parts of a pattern may be."""
MOST_WORK = 10**8
"""Comparisons of states while a pattern is compiled, about five seconds."""
IMPOSSIBLE = (
    "tokens that were drawn at once cannot be completed to match the pattern; "
    "draw one token at a time: roar, causal, or confident@T with T the length"
)


@dataclass(frozen=True, eq=False)
class Automaton:
    """A deterministic finite automaton over tokens."""

    onward: Int[Tensor, "s v"]
    """The state that each token leads to from each state, or DEAD."""
    accepting: Bool[Tensor, "s"]
    """The states in which a text may end. Every text begins in state 0."""

    @classmethod
    def of(cls, pattern: str, pieces: Sequence[str], end: int | None = None) -> Automaton:
        """Compile a regular expression that the whole text must match.

        Args:
            pattern: The expression, in Python syntax.
            pieces: The text of every token; a token without text is never allowed.
            end: The token that ends a text and pads it, if there is one.
        """
        machine = _compiled(pattern)
        live_states = _live(machine)
        states = [machine.initial, *(s for s in machine.states if s != machine.initial)]
        number = {state: i for i, state in enumerate(s for s in states if s in live_states)}
        if machine.initial not in number:
            raise ValueError(f"no text matches {pattern[:80]!r}")
        if len(number) > MOST_STATES:
            raise ValueError(
                f"{pattern[:80]!r} must need at most {MOST_STATES:,} states, got {len(number):,}"
            )
        live = list(number)
        rows = [[number.get(_read(machine, s, text), DEAD) for text in pieces] for s in live]
        accepting = [state in machine.finals for state in live]
        onward = torch.tensor(rows)
        if end is not None:  # one more state, in which nothing but the end follows
            onward = torch.nn.functional.pad(onward, (0, 0, 0, 1), value=DEAD)
            ended = len(live)
            onward[:, end] = torch.tensor([ended if a else DEAD for a in accepting] + [ended])
            accepting = [*accepting, True]
        return cls(onward, torch.tensor(accepting))

    def log_chance(self, p: Float[Tensor, "b l v"]) -> Logits:
        """Return ℓ_i(v) = log P(allowed | v at i) of independent tokens, up to a constant c_i.

        Args:
            p: A distribution for every position; one-hot for known tokens.
        """
        into = self.onward.to(p.device)
        here, chances = self.accepting.to(p).expand(len(p), -1), []
        for before, now in zip(
            self._before(p, into).flip(1).unbind(1), p.flip(1).unbind(1), strict=True
        ):
            lead = torch.nn.functional.pad(here, (0, 1))[:, into]  # (b, s, v): DEAD is the last
            chances.append(torch.einsum("bs,bsv->bv", before, lead))
            here = _scaled(torch.einsum("bv,bsv->bs", now, lead))
        return torch.stack(chances[::-1], dim=1).log()

    def _before(
        self, p: Float[Tensor, "b l v"], into: Int[Tensor, "s v"]
    ) -> Float[Tensor, "b l s"]:
        """Return the probability of each state before each position."""
        states = len(into)
        into = into.where(into != DEAD, states).flatten()
        here = torch.nn.functional.one_hot(torch.zeros_like(p[:, 0, 0], dtype=torch.long), states)
        found = [here.to(p)]
        for now in p[:, :-1].unbind(dim=1):
            weights = (found[-1].unsqueeze(-1) * now.unsqueeze(1)).flatten(1)
            reached = p.new_zeros(len(p), states + 1).index_add(1, into, weights)
            found.append(_scaled(reached[:, :-1]))
        return torch.stack(found, dim=1)

    def accepts(self, tokens: Tokens) -> Bool[Tensor, "b"]:
        """Return which texts are allowed."""
        here = torch.zeros_like(tokens[:, 0])
        onward = torch.nn.functional.pad(self.onward.to(tokens.device), (0, 0, 0, 1), value=DEAD)
        for token in tokens.unbind(dim=1):
            here = onward[here, token]  # from DEAD, which is the last row, to DEAD
        return (here != DEAD) & self.accepting.to(tokens.device)[here]


def matching(denoiser: Denoiser, automaton: Automaton, tokens: Tokens) -> Steered:
    """Condition a denoiser on the pattern; raise an error if no text can match it.

    Args:
        denoiser: A denoiser of masked states.
        automaton: The allowed texts.
        tokens: The known tokens of a text, MASK elsewhere.
    """
    p = torch.nn.functional.one_hot(tokens.clamp(min=0), denoiser.vocab_size).double()
    p[tokens == MASK] = 1 / denoiser.vocab_size
    if not (p.log() + automaton.log_chance(p) > -torch.inf).any(dim=-1).all():
        raise ValueError(
            f"no text of {tokens.shape[1]} tokens with the known ones matches the pattern"
        )
    return Steered(denoiser, automaton.log_chance, IMPOSSIBLE)


def _compiled(pattern: str) -> Any:
    interegular = require("interegular", extra="match")
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(
            f"a pattern must have at most {MOST_CHARACTERS:,} characters, got {len(pattern):,}"
        )
    try:
        with _bounded(interegular.fsm):
            machine = interegular.parse_pattern(pattern).to_fsm()
    except _TooLarge as error:
        raise ValueError(f"{pattern[:80]!r} {error}") from None
    except Exception as error:  # the library raises many exception types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{pattern[:80]!r} is not a supported regular expression: {reason}"
        ) from None
    return machine


class _TooLarge(Exception):
    """A pattern needs too many states."""


_COMPILING = Lock()


@contextmanager
def _bounded(fsm: Any) -> Iterator[None]:
    """Limit the states of every automaton that the library builds, and its work in total.

    The library builds all automata in one function, which has no limit of its own.
    """
    crawl, work = fsm.crawl, 0

    def bounded(alphabet: Any, initial: Any, final: Callable[[Any], bool], follow: Any) -> Any:
        found = 0

        def counted(state: Any) -> bool:
            nonlocal found, work
            found += 1
            work += (found + 20 * len(state)) * len(alphabet.by_transition)
            if found > LARGER * MOST_STATES or work > MOST_WORK:
                raise _TooLarge(f"must need at most {MOST_STATES:,} states, got more")
            return final(state)

        return crawl(alphabet, initial, counted, follow)

    with _COMPILING:
        fsm.crawl = bounded
        try:
            yield
        finally:
            fsm.crawl = crawl


def _live(machine: Any) -> set[int]:
    """Return the states from which an accepting state can be reached."""
    before: dict[int, set[int]] = {}
    for state, onward in machine.map.items():
        for after in onward.values():
            before.setdefault(after, set()).add(state)
    found, pending = set(machine.finals), list(machine.finals)
    while pending:
        new = before.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def _read(machine: Any, state: int, text: str) -> int | None:
    """Return the state after reading a text; None if the text is empty or rejected."""
    if not text:
        return None
    here: int | None = state
    for character in text:
        here = machine.map.get(here, {}).get(machine.alphabet[character])
        if here is None:
            return None
    return here


def _scaled(weights: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
    """Divide by the sum, so that long texts do not underflow; zeros stay zero."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-300)
