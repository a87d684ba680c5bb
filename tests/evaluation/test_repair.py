"""Repair: what is damaged, and that exact posteriors put right what can be put right."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from dsl.apps.reproduce import curves
from dsl.cli.main import main
from dsl.conditioning.evidence import Evidence, given
from dsl.conditioning.hints import Confident
from dsl.core import oracle, sphere
from dsl.core.denoiser import Continuous, Endpoints
from dsl.core.oracle import Enumerated
from dsl.core.types import MASK
from dsl.data.tokenizers import byte_level, characters, gpt2, mdlm_text8
from dsl.evaluation import repair
from dsl.evaluation.repair import Damage, beam, damage, repaired
from dsl.families.registry import FAMILIES

TEXTS = ["The cat and the dog sat", "Ten men and the red hen", "An old oak, the end, end"]
ALPHABET = "".join(sorted(set("".join(TEXTS))))
TOKENIZER = characters(ALPHABET)
BLOCKS = torch.tensor([[ALPHABET.index(letter) for letter in text[:23]] for text in TEXTS * 5])
KNOWN = frozenset({"and", "the", "The", "end"})
EVERYTHING = Continuous


def said(tokens: torch.Tensor) -> str:
    return "".join(ALPHABET[token] if token != MASK else "_" for token in tokens.tolist())


class TestDamage:
    def test_one_letter_or_one_word_of_a_block(self) -> None:
        probes = damage(BLOCKS, TOKENIZER, KNOWN)
        assert len(probes.letters.text) == len(probes.garbled.text) == len(BLOCKS)
        for part in (probes.letters, probes.garbled):
            assert (part.at.sum(dim=1) == 1).all()
            assert all(letter.isalpha() for letter in said(part.text[part.at]))
        assert (probes.letters.read[probes.letters.at] == MASK).all()
        right, wrong = (
            said(t[probes.garbled.at]) for t in (probes.garbled.text, probes.garbled.read)
        )
        assert [a.isupper() for a in right] == [b.isupper() for b in wrong] and wrong.isalpha()
        for text, read in zip(probes.words.text, probes.words.read, strict=True):
            gap = said(text[read == MASK])
            before, after = said(read).split("_" * len(gap))
            assert gap in KNOWN and not (before[-1] + after[0]).isalpha()

    def test_it_depends_on_the_place_of_a_block_and_the_seed_only(self) -> None:
        whole, part = damage(BLOCKS, TOKENIZER, KNOWN), damage(BLOCKS[:4], TOKENIZER, KNOWN)
        assert torch.equal(whole.garbled.read[:4], part.garbled.read)
        other = damage(BLOCKS, TOKENIZER, KNOWN, seed=1)
        assert not torch.equal(whole.letters.read, other.letters.read)

    def test_specials_and_bytes_are_no_letters(self) -> None:
        tokenizer = mdlm_text8()
        row = [2, *tokenizer.encode("the end of it", add_special_tokens=False).ids, 3]
        found = damage(torch.tensor([row]), tokenizer, ["end"])
        assert found.words.read.tolist() == [row[:5] + [MASK] * 3 + row[8:]]
        assert len(damage(torch.tensor([list(b"a b")]), byte_level(), []).letters.text) == 1

    def test_what_cannot_be_damaged_is_refused(self) -> None:
        with pytest.raises(ValueError, match="letters a to z, got none"):
            damage(torch.tensor([[0, 1]]), characters("12"), [])
        pieces = [bytes([b]) for b in range(256)] + [b"ab"]
        with pytest.raises(ValueError, match="needs a tokenizer of characters or bytes"):
            damage(torch.tensor([[0, 1]]), gpt2(pieces), [])


def exact(d: int | None = None) -> Enumerated:
    """The truth about three texts, the first of which is more frequent."""
    v = len(ALPHABET)
    generator = torch.Generator().manual_seed(0)
    codebook = (
        sphere.simplex(v, dtype=torch.float64)
        if d is None
        else torch.nn.functional.normalize(
            torch.randn(v, d, dtype=torch.float64, generator=generator), dim=1
        )
    )
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    return Enumerated(BLOCKS[:3], weights, codebook)


class TestRepair:
    @pytest.mark.parametrize("d", [None, 9])
    def test_the_exact_denoiser_puts_everything_right(self, d: int | None) -> None:
        """All texts differ in more than one place, so what is left tells which it was."""
        found = repaired(exact(d), EVERYTHING, damage(BLOCKS, TOKENIZER, KNOWN))
        assert len(found) == 7
        assert {name: (share.mean, share.stderr) for name, share in found.items()} == dict.fromkeys(
            found, (1.0, 0.0)
        )

    def test_a_share_is_a_share(self) -> None:
        """Of two texts with different ends, the likelier end is the first guess."""
        ends = torch.tensor([[0, 1], [0, 1], [0, 1], [0, 2]])
        truth = Enumerated(
            torch.tensor([[0, 1], [0, 2]]),
            torch.tensor([0.75, 0.25], dtype=torch.float64).log(),
            sphere.simplex(3, dtype=torch.float64),
        )
        read = ends.clone()
        read[:, 1] = MASK
        nothing = Damage(ends[:0], ends[:0])
        probes = repair.Probes(Damage(ends, read), nothing, Damage(ends, read))
        found = repaired(truth, EVERYTHING, probes)
        assert set(found) == {"letter_top1", "letter_top5", "word_top1", "word_top5"}
        for name, share in found.items():
            assert share.mean == (0.75 if name.endswith("top1") else 1.0)
        assert found["letter_top1"].stderr == pytest.approx((0.75 * 0.25 / 3) ** 0.5)

    def test_what_cannot_be_asked_is_left_out(self) -> None:
        probes = damage(BLOCKS, TOKENIZER, KNOWN)
        masked = repaired(exact(), FAMILIES["mdlm"].protocol, probes)
        assert {name.split("_")[0] for name in masked} == {"letter", "word"}
        for other in ("ar", "vp"):
            assert repaired(exact(), FAMILIES[other].protocol, probes) == {}

    @pytest.mark.parametrize("d", [None, 9])
    def test_garbled_text_is_evidence_about_every_letter(self, d: int | None) -> None:
        """Two routes: hints for all positions, or a row of a table for each token."""
        truth, part = exact(d), damage(BLOCKS[:3], TOKENIZER, KNOWN).garbled
        hints = [[Confident(t, repair.CONFIDENCE) for t in row] for row in part.read.tolist()]
        wanted = given(truth, Evidence.of(hints, truth))(
            Endpoints(torch.full_like(part.text, MASK))
        )
        torch.testing.assert_close(repair._reread(truth, part)[0], wanted[part.at])


class TestBeam:
    def test_a_beam_of_everything_ranks_all_fills_by_their_probability(self) -> None:
        """An exact denoiser's product along any order is the probability, by the chain rule."""
        truth = oracle.markov(3, 6)
        text = truth.sample(2, generator=torch.Generator().manual_seed(0))
        read = text.clone()
        read[0, 1:4], read[1, 2:4] = MASK, MASK
        found = beam(truth, read, 27)
        for row, size in ((0, 3), (1, 2)):
            fills = read[row].repeat(3**size, 1)
            fills[fills == MASK] = torch.tensor(
                list(itertools.product(range(3), repeat=size))
            ).flatten()
            kept = found[row, : 3**size]
            assert {*map(tuple, kept.tolist())} == {*map(tuple, fills.tolist())}
            ranked = truth.log_prob(fills).sort(descending=True).values  # two may be equally likely
            torch.testing.assert_close(truth.log_prob(kept), ranked)

    def test_a_narrow_beam_begins_with_what_is_surest(self) -> None:
        truth = oracle.cyclic(7)
        read = torch.tensor([[3, MASK, MASK, 6, 0, 1, MASK]])
        assert beam(truth, read, 2)[0, 0].tolist() == [3, 4, 5, 6, 0, 1, 2]


def test_training_reports_what_the_command_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "BLOCKS", 48)
    out, cache = tmp_path / "run", str(tmp_path / "cache")
    assert main(["train", "english-tiny", "--smoke", "--out", str(out), "--cache", cache]) == 0
    assert "repair letter top1 0." in capsys.readouterr().err.replace("\n", " ")
    lines = map(json.loads, (out / "log.jsonl").read_text().splitlines())
    last = [event["validation"] for event in lines if "validation" in event][-1]
    logged = {name.removeprefix("repair."): v for name, v in last.items() if "repair" in name}
    job = [
        "evaluate",
        "repair",
        str(out / "model"),
        "python-docs",
        "--split",
        "validation",
        "--limit",
        "48",
        "--cache",
        cache,
    ]
    assert main([*job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [name for name in logged if not name.endswith("_stderr")]
    assert len(names) == 7
    for name in names:
        assert found[name] == pytest.approx(
            {"mean": logged[name], "stderr": logged[f"{name}_stderr"]}
        )
    assert set(curves.read(out)) == {"roar", "shared"}  # shares are no bits
    assert main(job) == 0
    assert "word top5" in capsys.readouterr().out


def test_a_model_of_one_direction_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = [
        "evaluate",
        "repair",
        "text8-tiny-ar",
        "python-docs",
        "--limit",
        "4",
        "--cache",
        str(tmp_path),
    ]
    assert main(job) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "family ar" in line
