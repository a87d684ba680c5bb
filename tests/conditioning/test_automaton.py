"""Texts that match a pattern: against enumeration, and kept whatever the network predicts."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import dsl
from dsl.cli.main import main
from dsl.conditioning import automaton
from dsl.conditioning.automaton import Automaton, matching
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conftest import assert_near

pytest.importorskip("interegular")
LETTERS = "abc"
PATTERNS = ["(ab|c)*", "a.*c", "[ab]+c?", "(a|b|c){4}", "(abc|b)+.", "a*b*c*"]
LENGTH = 4
TEXTS = torch.tensor(list(itertools.product(range(3), repeat=LENGTH)))


def fits(pattern: str) -> torch.Tensor:
    found = ["".join(LETTERS[t] for t in row) for row in TEXTS.tolist()]
    return torch.tensor([re.fullmatch(pattern, text) is not None for text in found])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_of_independent_tokens_the_posterior_is_that_of_enumeration(pattern: str) -> None:
    generator = stream(3)
    p = torch.rand(1, LENGTH, 3, generator=generator, dtype=torch.float64)
    p = p / p.sum(-1, keepdim=True)
    whole = p[0, torch.arange(LENGTH), TEXTS].prod(dim=-1) * fits(pattern)
    wanted = torch.stack([
        torch.stack([whole[TEXTS[:, i] == v].sum() for v in range(3)]) for i in range(LENGTH)
    ])  # fmt: skip
    told = p.log() + Automaton.of(pattern, LETTERS).log_chance(p)
    assert_near(told[0].softmax(-1), wanted / wanted.sum(-1, keepdim=True))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_accepts_what_matches(pattern: str) -> None:
    assert torch.equal(Automaton.of(pattern, LETTERS).accepts(TEXTS), fits(pattern))


@pytest.mark.parametrize("name", ["mdlm@1", "ardm@1", "confident@1"])
def test_what_was_drawn_together_and_does_not_match_is_refused(name: str) -> None:
    form = "(ABC|BCA|CAB)A.*"  # of tokens that do not know of each other, few match
    with pytest.raises(ValueError, match="draw one token at a time"):
        dsl.generate("oracle:cyclic-7", 20, sampler=name, match=form)


@pytest.mark.parametrize("name", ["localize@4", "edm@4", "hybrid@4+2"])
def test_paths_between_mask_and_token_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="match needs a masked sampler; this sampler"):
        dsl.generate("oracle:cyclic-7", sampler=name, match=".*")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["roar", "causal", "confident@4"])
def test_what_is_drawn_one_by_one_has_the_form(pattern: str, name: str) -> None:
    chain = oracle.markov(3, LENGTH)
    start = State.blank(200, LENGTH)
    told = matching(chain, Automaton.of(pattern, LETTERS), start.tokens)
    end = last(sampler(name), told, start, generator=stream(0)).tokens
    allowed = {tuple(row) for row in TEXTS[fits(pattern)].tolist()}
    assert {tuple(row) for row in end.tolist()} <= allowed
    assert len({tuple(row) for row in end.tolist()}) > 1


def test_the_last_token_is_exact_whatever_the_distribution() -> None:
    chain = oracle.markov(3, LENGTH)
    tokens = torch.tensor([[0, 1, MASK, 1]])
    told = matching(chain, Automaton.of("ab[bc]b", LETTERS), tokens)
    rows = told(Endpoints(tokens), at=tokens == MASK).softmax(-1)
    plain = chain(Endpoints(tokens), at=tokens == MASK).softmax(-1)
    wanted = plain * torch.tensor([0.0, 1.0, 1.0])
    assert_near(rows, wanted / wanted.sum())


def test_pieces_and_ends() -> None:
    """A token may be several characters; after the end of a text nothing but the end follows."""
    machine = Automaton.of("ab+c", ["a", "b", "bb", "c", ""], end=4)
    uniform = torch.full((1, 5, 5), 0.2, dtype=torch.float64)
    sure = machine.log_chance(uniform) > -torch.inf
    assert sure[0, 0].tolist() == [True, False, False, False, False]
    known = torch.nn.functional.one_hot(torch.tensor([[0, 2, 3, 4, 4]]), 5).double()
    assert (machine.log_chance(known).exp() * known).sum(-1).min() > 0
    early = torch.nn.functional.one_hot(torch.tensor([[0, 4, 2, 3, 4]]), 5).double()
    assert (machine.log_chance(early).exp() * early).sum() == 0


@pytest.mark.slow
def test_models_write_texts_of_the_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Letters and pieces, from Python and from a shell; and who cannot says so."""
    form = "the [a-z]+ (is|was) [a-z ]*"
    for sample in dsl.generate("text8-tiny", 2, length=16, sampler="roar", match=form):
        assert re.fullmatch(form, sample.text)
    story = r"Once upon a time, there was a (big|small) (dog|cat)[a-z ,]*\\."
    texts = dsl.generate("stories-tiny", 2, length=24, sampler="causal", match=story)
    for sample in texts:
        assert re.fullmatch(story, sample.text), "it ends where the form does"
    order = ["sample", "--model", "text8-tiny", "--sampler", "causal", "--length", "12", "--match"]
    assert main([*order, "a [a-z]*"]) == 0
    assert "a " in capsys.readouterr().out
    assert main([*order, "a [0-9]+"]) != 0
    assert "no text of 12 tokens" in capsys.readouterr().err
    with pytest.raises(ValueError, match="family ar: only a model that predicts masked"):
        dsl.generate("text8-tiny-ar", sampler="causal", match="a.*")


def test_what_cannot_be_is_said_in_one_line() -> None:
    chain = oracle.markov(3, LENGTH)
    with pytest.raises(ValueError, match="is not a supported regular expression"):
        Automaton.of("(a", LETTERS)
    with pytest.raises(ValueError, match="no text of 4 tokens with the known ones"):
        matching(chain, Automaton.of("a{5}", LETTERS), torch.full((1, 4), MASK))
    with pytest.raises(ValueError, match="with the known ones"):
        matching(chain, Automaton.of("a*", LETTERS), torch.tensor([[MASK, 1, MASK, MASK]]))
    told = matching(chain, Automaton.of("(aaaa|bbbb)", LETTERS), torch.full((1, 4), MASK))
    with pytest.raises(ValueError, match="draw one token at a time: roar"):
        told(Endpoints(torch.tensor([[0, 1, MASK, MASK]])))
    with pytest.raises(ValueError, match="a masked path"):
        told(torch.zeros(1, 4, 2).double())


@pytest.mark.parametrize(
    "pattern", ["a{1000000000}", "(a{1000}){1000}", "(a|b)*a(a|b){20}", ".*a.{30}", "a" * 4001]
)
def test_large_patterns_are_refused_while_they_are_built(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automaton, "MOST_STATES", 100)
    with pytest.raises(ValueError, match=r"must (need|have) at most"):
        Automaton.of(pattern, list("abc"))
