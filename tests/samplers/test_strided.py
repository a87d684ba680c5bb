"""Texts longer than a network: exact where the past is forgotten, and the path's own otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import dsl
from dsl.cli.main import main
from dsl.conditioning.evidence import Allowed, Confident, Evidence, Known, Unknown, given
from dsl.conditioning.guidance import guided
from dsl.core import oracle
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.specification import from_data, to_data
from dsl.samplers.state import State
from dsl.samplers.strided import Strided
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.conftest import assert_near
from tests.exact_times import enumerated

CHAIN = oracle.markov(3, 3, sharpness=0.8)
LONGER = enumerated(replace(CHAIN, length=5))


@pytest.mark.parametrize("name", ["roar", "causal", "confident@3"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_chain_that_forgets_is_drawn_exactly(name: str, stride: int) -> None:
    """A window that shows one token of the past shows a first-order chain all of it."""
    path = Strided(sampler(name), 3, stride)
    end = last(path, CHAIN, State.blank(DRAWS, 5), generator=stream(1))
    assert p_value(LONGER, end.tokens) > 1e-4


def test_windows_that_do_not_overlap_forget_too_much() -> None:
    """The same test fails where no token of the past is shown: it can fail."""
    path = Strided(sampler("roar"), 3, 3)
    longest = enumerated(replace(CHAIN, length=6))
    end = last(path, CHAIN, State.blank(DRAWS, 6), generator=stream(1))
    assert p_value(longest, end.tokens) < 1e-9


def test_a_text_of_one_window_is_the_paths_own() -> None:
    streams = Streams.derive(4, range(6))
    whole = last(sampler("mdlm@4"), CHAIN, State.blank(6, 3), generator=streams)
    again = Streams.derive(4, range(6))
    window = last(Strided(sampler("mdlm@4"), 3, 2), CHAIN, State.blank(6, 3), generator=again)
    assert (whole.tokens == window.tokens).all() and (whole.nfe == window.nfe).all()


@pytest.mark.parametrize(("length", "stride", "begins"),
    [(3, 2, [0]), (2, 1, [0]), (5, 2, [0, 2]), (6, 2, [0, 2, 3]), (9, 3, [0, 3, 6])])  # fmt: skip
def test_windows_cover_the_text_and_end_where_it_does(
    length: int, stride: int, begins: list[int]
) -> None:
    assert Strided(sampler("roar"), 3, stride).begins(length) == begins


def test_what_is_written_or_given_stays() -> None:
    tokens = torch.full((2, 8), MASK)
    tokens[0, 0], tokens[1, 6] = 2, 1
    seen = State.start(tokens)
    for state in Strided(sampler("remdm-conf@6"), 3, 1).steps(CHAIN, seen, generator=stream(0)):
        assert (state.tokens[tokens != MASK] == tokens[tokens != MASK]).all()
        begin = [0, 1, 2, 3, 4, 5][state.stage]
        assert (state.tokens[:, :begin] == seen.tokens[:, :begin]).all(), "the past is past"
        seen = state
    assert (seen.tokens != MASK).all()
    assert (seen.nfe > 6).all()


def test_a_walk_goes_on_from_any_state_of_it() -> None:
    path = Strided(sampler("confident@3:temperature=0"), 3, 2)
    states = list(path.steps(CHAIN, State.blank(2, 8)))
    for state in states:
        rest = list(path.steps(CHAIN, state))
        end = rest[-1] if rest else state
        assert (end.tokens == states[-1].tokens).all() and (end.nfe == states[-1].nfe).all()


@pytest.mark.parametrize("name", ["mdlm@5", "remdm-conf@5", "first-hitting@5", "roar", "causal",
    "confident@3", "ardm@3", "localize@4", "hybrid@4+3"])  # fmt: skip
def test_a_text_does_not_depend_on_its_neighbours(name: str) -> None:
    """Nor on how much is known of them, which decides how many steps a window takes."""
    chain, path = oracle.markov(3, 6, sharpness=0.8), Strided(sampler(name), 6, 4)
    tokens = torch.full((3, 16), MASK)
    tokens[0, :4], tokens[1, 3:9], tokens[2, 14] = 1, 0, 2
    together = last(path, chain, State.start(tokens), generator=Streams.derive(1, range(3)))
    for row in range(3):
        own = State.start(tokens[row : row + 1])
        alone = last(path, chain, own, generator=Streams.derive(1, [row]))
        assert torch.equal(alone.tokens[0], together.tokens[row])


def test_a_window_knows_what_is_known_of_it() -> None:
    """Evidence about a stretch is the stretch of it: pins, states and what is ruled out."""
    whole = oracle.markov(4, 6)
    part = replace(whole, length=3)
    row = [Unknown(), Known(1), Confident(2, 0.7), Allowed([0, 3]), Unknown(), Confident(1, 0.6)]
    evidence = Evidence.of([row], whole)
    for begin in range(4):
        wanted = given(part, Evidence.of([row[begin : begin + 3]], whole))
        state = State.blank(1, 3).endpoints
        found = given(part, evidence.stretch(begin, begin + 3))
        assert_near(found(state).softmax(-1), wanted(state).softmax(-1))
        twice = guided(part, evidence, 2.0).stretch(begin, begin + 3)  # type: ignore[attr-defined]
        again = guided(part, Evidence.of([row[begin : begin + 3]], whole), 2.0)
        assert_near(twice(state).softmax(-1), again(state).softmax(-1))


def test_it_is_written_and_read_as_plain_data() -> None:
    path = Strided(sampler("hybrid@4+2"), 64, 16)
    assert from_data(to_data(path)) == path
    with pytest.raises(ValueError, match="strid"):
        from_data({"kind": "Strided", "sampler": to_data(sampler("roar")), "strid": 3})
    with pytest.raises(ValueError, match="must be a mapping with a 'kind', got None"):
        from_data({"kind": "Strided", "window": 4, "stride": 2})
    with pytest.raises(ValueError, match=r"a stride must lie in 1 … 4.*got 5"):
        from_data({**to_data(path), "window": 4, "stride": 5})


class TestUse:
    def test_texts_longer_than_the_model(self) -> None:
        samples = dsl.generate(
            "text8-tiny", 2, length=150, stride=32, sampler="mdlm@4", prompt="the"
        )
        assert [len(sample.tokens) for sample in samples] == [150, 150]
        assert all(sample.text.startswith("the") for sample in samples)

    def test_a_prompt_may_be_longer_than_the_model(self) -> None:
        prompt = "the house of " * 25
        (sample,) = dsl.generate(
            "text8-tiny", length=340, stride=64, sampler="mdlm@2", prompt=prompt
        )
        assert sample.text.startswith(prompt) and len(sample.text) == 340

    def test_a_sampler_with_a_stride_needs_no_other(self) -> None:
        path = Strided(sampler("mdlm@2"), 128, 64)
        cold = dsl.generate("text8-tiny", length=132, sampler=path, temperature=0.0)
        assert len(cold[0].tokens) == 132
        assert cold[0].tokens == dsl.generate("text8-tiny", length=132, stride=64,
                                              sampler="mdlm@2:temperature=0")[0].tokens  # fmt: skip
        with pytest.raises(ValueError, match="a stride already, 64: leave stride out"):
            dsl.generate("text8-tiny", length=132, sampler=path, stride=4)

    def test_the_command_says_what_it_would_take(self, capsys: pytest.CaptureFixture[str]) -> None:
        job = ["sample", "--model", "text8-tiny", "--length", "140", "--sampler", "mdlm@3"]
        assert main(job) == 1
        assert "got length 140; a stride (--stride N) writes" in capsys.readouterr().err
        assert main([*job, "--stride", "40"]) == 0
        assert len(capsys.readouterr().out.rstrip("\n")) == 140
        assert main([*job, "--stride", "400"]) == 1
        assert "a stride must lie in 1 … 128" in capsys.readouterr().err
        assert main([*job, "--stride", "4", "--match", "a*"]) == 1
        assert "match or stride" in capsys.readouterr().err
