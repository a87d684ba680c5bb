"""Models of documents: where a text ends, told by an oracle that knows four documents."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tokenizers import AddedToken

import dsl
from dsl.checkpoints.loading import Model
from dsl.conditioning.hints import Confident, Hint, Known, Unknown
from dsl.conditioning.padding import Padded
from dsl.core.oracle import Enumerated
from dsl.core.sphere import simplex
from dsl.data import tokenizers
from dsl.data.document_ends import padding
from dsl.evaluation.scoring import likelihood
from dsl.generation import InfillOptions, generate, infill, infilling
from dsl.generation.prompts import ended
from dsl.samplers.base import Chain, redrawn
from dsl.samplers.localize import Localize
from dsl.samplers.registry import sampler

WEIGHTS = {"a": 1, "ab": 2, "abba": 4, "bab": 1}
LENGTH = 5


@pytest.fixture(params=["end", "begin and end", "the same"])
def model(request: pytest.FixtureRequest) -> Model:
    """The exact model of four documents; blocks begin with nothing, a special, or the end."""
    specials = {"end": ["", "."], "begin and end": ["^", "."], "the same": [".", "."]}
    return documents(*specials[request.param])


def documents(begin: str = "", end: str = ".") -> Model:
    tokenizer = tokenizers.characters("ab")
    tokenizer.add_special_tokens([AddedToken(s) for s in dict.fromkeys((begin, end)) if s])
    tokenizer = tokenizers.bracketed(tokenizer, begin, end)
    names = tokenizer.get_vocab()
    length = LENGTH + bool(begin)
    rows = [[names[s] for s in (begin + text).ljust(length, end)] for text in WEIGHTS]
    weights = torch.tensor(list(WEIGHTS.values()), dtype=torch.float64).log()
    truth = Enumerated(torch.tensor(rows), weights, simplex(len(names)).double())
    return Model("four", truth, tokenizer, length, exact_length=True, documents=True)


def test_a_sample_is_read_up_to_its_end(model: Model) -> None:
    samples = generate(model, n=200, sampler="roar")
    assert all(len(sample.tokens) == model.length for sample in samples)
    counts = Counter(sample.text for sample in samples)
    for text, weight in WEIGHTS.items():
        p = weight / 8
        assert abs(counts[text] / 200 - p) < 4 * math.sqrt(p * (1 - p) / 200), text
    assert set(counts) == set(WEIGHTS)


def test_a_prompt_begins_the_document(model: Model) -> None:
    texts = Counter(s.text for s in generate(model, n=60, prompt="ab", sampler="roar"))
    assert set(texts) == {"ab", "abba"}
    assert {s.text for s in generate(model, n=9, prompt="b", sampler="roar")} == {"bab"}


def test_an_infilled_text_ends_where_it_ends_if_that_is_said(model: Model) -> None:
    """A gap at its end may hold the end already."""
    assert {s.text for s in infill("a[1]", model, n=40, ending="here")} == {"a", "ab"}
    assert {s.text for s in infill("[1]ab", model, n=9, ending="here")} == {"bab"}
    opened = {s.text for s in infill("a[1]", model, n=60, ending="open")}
    assert opened == {"a", "ab", "abba"}
    assert {s.text for s in infill("ab[1]", model, n=40, ending="open")} == {"ab", "abba"}
    assert {s.text for s in infill("ab[1]", model, n=40, ending="here")} == {"ab"}
    request = infilling(model, ["a[1]"], InfillOptions(ending="here"))
    assert request.length == model.length


def test_what_follows_a_text_is_unknown_and_not_written(model: Model) -> None:
    """The gap's law is that of all documents that go on in any way: their first two tokens."""
    begun = Counter(s.text for s in infill("a[1]", model, n=300))
    weights = Counter[str]()
    for text, weight in WEIGHTS.items():
        if text.startswith("a"):
            weights[text[:2]] += weight
    assert set(begun) == set(weights)
    for text, weight in weights.items():
        p = weight / weights.total()
        assert abs(begun[text] / 300 - p) < 4 * math.sqrt(p * (1 - p) / 300) + 1e-9, text
    batch = next(infilling(model, ["a[1]"], InfillOptions()).batches())
    assert isinstance(batch.denoiser, Padded)
    assert batch.start.tokens.shape[1] + batch.denoiser.unseen == model.length


def test_an_end_before_text_that_was_given_does_not_cut_it() -> None:
    end = documents().end
    assert end is not None
    hints = [Known(0), Known(end), Known(1), Unknown(), Unknown()]
    inner = documents()
    flat = Enumerated(
        torch.tensor([[0, end, 1, end, end]]), torch.zeros(1).double(), inner.denoiser.codebook
    )
    found = generate(replace(inner, denoiser=flat), hints=hints, sampler="roar")[0]
    assert found.text == "a.b"


def test_documents_that_share_blocks_have_an_end_but_no_padding(model: Model) -> None:
    sharing = replace(model, share=True)
    begun = len(model.ends[0])
    assert len(ended(sharing, [Known(0)], "here")) == begun + 2
    assert len(ended(model, [Known(0)], "here")) == model.length
    whole = [Known(0)] * (model.length - begun)
    for one in (model, sharing):
        assert len(ended(one, whole, "here")) == model.length


@pytest.mark.parametrize("text", WEIGHTS)
def test_bits_are_those_of_the_document(model: Model, text: str) -> None:
    """-log2 P of the document; among its tokens the end counts, and padding does not."""
    bits = -math.log2(WEIGHTS[text] / 8)
    begun = len(model.ends[0])
    report = likelihood(model, text, budget=256, only=["roar"])
    error = 4 * report.bits_per_document("roar").stderr + 1e-6
    assert report.bits_per_document("roar").mean == pytest.approx(bits, abs=error)
    assert report.scored == begun + len(text) + 1
    assert report.bits_per_token("roar").mean * report.scored == pytest.approx(bits, abs=error)
    assert report.bits_per_character("roar").mean * len(text) == pytest.approx(bits, abs=error)
    assert report.to_dict()["roar"]["bits_per_document"] == report.bits_per_document("roar").mean


def test_bits_per_document_average_over_texts(model: Model) -> None:
    report = likelihood(model, list(WEIGHTS), budget=64, only=["roar"])
    each = [one.bits_per_document("roar").mean for one in report.by_text()]
    assert report.bits_per_document("roar").mean == pytest.approx(sum(each) / len(each))


def test_a_model_of_windows_knows_no_documents() -> None:
    plain = replace(documents(), documents=False)
    assert plain.document([0, 2, 2]) == [0, 2, 2]
    report = likelihood(plain, "abba", only=["roar"], budget=8)
    with pytest.raises(ValueError, match="has scored no whole documents"):
        report.bits_per_document("roar")
    assert "bits_per_document" not in report.to_dict()["roar"]
    with pytest.raises(ValueError, match="so its texts have no end"):
        infill("a[4]", plain, ending="open")


def test_calibration_leaves_padding_out(model: Model) -> None:
    """At a high SNR every token is asked about, and nothing else."""
    rows = model.denoiser.sample(40, generator=torch.Generator().manual_seed(0))
    found = dsl.calibrate(model, rows, snrs=[50.0])[0]
    assert found.positions == int((~padding(rows, model.ends))[20:].sum())
    plain = dsl.calibrate(replace(model, documents=False), rows, snrs=[50.0])[0]
    assert plain.positions == 20 * model.length


def test_a_doubtful_document_is_corrected_as_a_whole_one(model: Model) -> None:
    a, b = (model.encode(letter)[0] for letter in "ab")

    def corrected(*hints: Hint) -> str:
        row = ended(model, list(hints), "here")
        return generate(model, hints=row, sampler="roar:temperature=0")[0].text

    assert corrected(Known(a), Unknown()) == "ab"
    assert corrected(Confident(b, 0.9), Confident(b, 0.6), Confident(b, 0.9)) == "bab"


class TestTheDraw:
    """Temperature and top-p in one call."""

    def test_it_is_that_of_the_name(self) -> None:
        for name in ("mdlm@8", "roar", "hybrid@4+4", "edm@4", "remdm-loop@32", "vp@4"):
            written = sampler(f"{name}:temperature=0.3,top_p=0.7")
            assert redrawn(sampler(name), temperature=0.3, top_p=0.7) == written
            assert redrawn(written, temperature=0.3) == written

    def test_what_is_not_said_stays(self) -> None:
        assert redrawn(sampler("roar:top_p=0.5"), temperature=0.2) == sampler(
            "roar:top_p=0.5,temperature=0.2"
        )
        assert redrawn(sampler("roar")) == sampler("roar")

    def test_temperature_zero_is_the_most_likely_text(self, model: Model) -> None:
        drawn = {s.text for s in generate(model, n=9, sampler="causal", temperature=0.0)}
        assert drawn == {"abba"}
        assert {s.text for s in infill("[2]", model, n=9, sampler="causal", top_p=0.1)} == {"ab"}

    def test_one_line_says_what_is_wrong(self, model: Model) -> None:
        only_walks = Chain((Localize(4, 40.0),))
        for call, message in (
            (lambda: generate(model, sampler=only_walks, temperature=1.0), "no 'draw' to change"),
            (
                lambda: generate(model, temperature=-1.0),
                "temperature must be finite and at least 0",
            ),
            (lambda: generate(model, temperature=math.nan), "temperature must be finite"),
            (lambda: infill("[1]", model, top_p=0.0), "top_p must lie in"),
            (lambda: generate(model, prompt="a", hints=[Known(0)]), "a prompt or hints, not both"),
            (lambda: generate(model, prompt="ab" * 4), "the prompt has . tokens, the sequence"),
        ):
            with pytest.raises(ValueError, match=message):
                call()


def test_texts_of_any_length_are_drawn_in_their_order(model: Model) -> None:
    request = infilling(model, ["a[1]", "ab[1]", "b[1]"], InfillOptions(n=2))
    drawn = [i for batch in request.batches() for i in batch.indices]
    assert drawn == list(range(6))
