"""Repair of damaged text: blanked letters, garbled letters, blanked words.

The damage to held-out text is the same for every network with the same tokenizer, so results of
different runs and steps can be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor

from dsl.conditioning.evidence import Evidence, given
from dsl.conditioning.hints import Confident
from dsl.core.denoiser import Continuous, Denoiser, Endpoints, Network, at_once, require_logits
from dsl.core.streams import stream
from dsl.core.types import MASK, Mask, Rows, Tokens
from dsl.data import tokenizers
from dsl.data.corpora import Corpus
from dsl.likelihoods.estimate import Mean

BLOCKS, WORDS = 256, 128
"""Blocks with a blanked and a garbled letter, and blocks with a blanked word."""
BEST = 5
"""A repair counts for top-1 if it is the most likely, and for top-5 if it is among the five."""
CONFIDENCE = 0.9
"""Confidence of every letter of a garbled text, right or wrong."""
FREQUENT, SHORTEST, LONGEST = 300, 3, 8
"""Blanked words are among the 300 most frequent and have 3 to 8 letters."""
COUNTED = 10_000_000
"""Bytes of the training text in which words are counted."""
WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, eq=False)
class Damage:
    """Blocks of text before and after damage."""

    text: Tokens
    read: Tokens
    """The damaged text: MASK where it was blanked, or a wrong letter."""

    @property
    def at(self) -> Mask:
        """Where the damage is."""
        return self.text != self.read

    def to(self, device: torch.device) -> Damage:
        """Move both to a device."""
        return Damage(self.text.to(device), self.read.to(device))


@dataclass(frozen=True, eq=False)
class Probes:
    """A fixed set of damaged texts."""

    letters: Damage
    garbled: Damage
    words: Damage


def frequent_words(corpus: Corpus) -> frozenset[str]:
    """Return the most frequent words of the training text."""
    text = corpus.read("train", COUNTED).decode("utf-8", errors="ignore")
    counted = Counter(WORD.findall(text)).most_common(FREQUENT)
    return frozenset(word for word, _ in counted if SHORTEST <= len(word) <= LONGEST)


def damage(
    blocks: Tokens, tokenizer: Tokenizer, words: Collection[str], *, seed: int = 0
) -> Probes:
    """Blank a letter, garble a letter and blank a word of each block, if it has one.

    Args:
        blocks: Held-out text, one token per character.
        tokenizer: The tokenizer of the blocks.
        words: Words that may be blanked.
        seed: The seed and the index of a block determine its damage.
    """
    symbols = _symbols(tokenizer)
    letters: list[Damage] = []
    garbled: list[Damage] = []
    blanked: list[Damage] = []
    for row, block in enumerate(blocks):
        text = "".join(symbols[token] for token in block.tolist())
        places = [i for i, symbol in enumerate(text) if WORD.fullmatch(symbol)]
        known = [
            range(*word.span())
            for word in WORD.finditer(text)
            if word[0] in words and word.start() > 0 and word.end() < len(text)
        ]
        if places:
            place = _one_of(places, seed, row, 0)
            letters.append(_damaged(block, range(place, place + 1), MASK))
            place = _one_of(places, seed, row, 1)
            if others := _others(text[place], symbols):
                wrong = _one_of(others, seed, row, 2)
                garbled.append(_damaged(block, range(place, place + 1), wrong))
        if known and len(blanked) < WORDS:
            blanked.append(_damaged(block, _one_of(known, seed, row, 3), MASK))
    if not letters:
        raise ValueError("repair needs text with letters a to z, got none")
    return Probes(*(_together(part, blocks) for part in (letters, garbled, blanked)))


def repaired(network: Any, protocol: type, probes: Probes) -> dict[str, Mean]:
    """Return the share of restored damage by kind, with standard errors.

    letter: the blanked letter is the most likely, or among the five most likely, given all others.
    garbled: the same for the true letter in place of a wrong one, when every letter of the block
    is evidence with one confidence; kept: the share of right letters that stay. word: the blanked
    word is the most likely, or among the five most likely, of a beam search.

    Args:
        network: The network.
        protocol: The protocol it implements: letters and words need a `Denoiser`, garbled letters
            a `Continuous` one. Unsupported probes are omitted.
        probes: The damaged texts.
    """
    shares: dict[str, Tensor] = {}
    letters, garbled, words = (
        part.to(network.device) for part in (probes.letters, probes.garbled, probes.words)
    )
    with torch.no_grad():
        if Denoiser in protocol.__mro__ and len(letters.text):
            rows = [network(Endpoints(p.read), at=p.at) for p in _batches(letters, network)]
            shares |= _ranked("letter", torch.cat(rows), letters.text[letters.at])
        if Continuous in protocol.__mro__ and len(garbled.text):
            found = [_reread(network, part) for part in _batches(garbled, network)]
            at = torch.cat([rows for rows, _ in found])
            shares |= _ranked("garbled", at, garbled.text[garbled.at])
            shares["garbled_kept"] = torch.cat([kept for _, kept in found])
        if Denoiser in protocol.__mro__ and len(words.text):
            fills = beam(network, words.read, BEST)
            right = (fills == words.text.unsqueeze(1)).all(dim=2)
            shares |= {"word_top1": right[:, 0], f"word_top{BEST}": right.any(dim=1)}
    return {name: Mean.of(share, torch.zeros(len(share))) for name, share in shares.items()}


def beam(network: Any, read: Tokens, width: int) -> Int[Tensor, "b w l"]:
    """Fill the masks of every sequence by beam search; return `width` fills, best first.

    Each partial fill is extended at its most confident position by every token. The `width` fills
    with the highest product of probabilities are kept.
    """
    fills = read.new_empty(len(read), width, read.shape[1])
    sizes = (read == MASK).sum(dim=1)
    most = max(1, at_once(network, read.shape[1]) // width)
    for size in sizes.unique().tolist():
        for rows in (sizes == size).nonzero().squeeze(1).split(most):
            fills[rows] = _beam(network, read[rows], size, width)
    return fills


def _beam(network: Any, read: Tokens, size: int, width: int) -> Int[Tensor, "b w l"]:
    n, length = read.shape
    found, score = read.unsqueeze(1), torch.zeros(n, 1, dtype=torch.float64, device=read.device)
    for left in range(size, 0, -1):
        masked = found == MASK
        logits = network(Endpoints(found.flatten(0, 1)), at=masked.flatten(0, 1))
        require_logits(logits)
        log_p = logits.double().log_softmax(dim=-1).unflatten(0, (n, -1, left))
        surest = log_p.amax(dim=-1).argmax(dim=-1)  # the next mask of each fill
        place = masked.nonzero()[:, 2].view(n, -1, left).gather(2, surest.unsqueeze(2))
        of_token = log_p.gather(2, surest[..., None, None].expand(-1, -1, 1, log_p.shape[-1]))
        total = (score.unsqueeze(2) + of_token.squeeze(2)).flatten(1)
        score, best = total.topk(min(width, total.shape[1]), dim=1)
        parent, token = best // log_p.shape[-1], best % log_p.shape[-1]
        found = found.gather(1, parent.unsqueeze(2).expand(-1, -1, length))
        found = found.scatter(2, place.squeeze(2).gather(1, parent).unsqueeze(2), token[..., None])
    missing = width - found.shape[1]
    return torch.cat([found, found[:, -1:].expand(-1, missing, -1)], dim=1)


def _reread(network: Any, part: Damage) -> tuple[Rows, Float[Tensor, "n"]]:
    """Condition on a whole text with one confidence per letter.

    Return the logits of the damaged letters, and the share of the other letters that stay.
    """
    v = network.vocab_size
    table = Evidence.of([[Confident(token, CONFIDENCE) for token in range(v)]], network)
    assert table.e is not None
    unknown = torch.full_like(part.read, MASK)
    evidence = Evidence(unknown, table.e[0][part.read])
    if table.at is not None and table.residual is not None:
        rest = table.residual.new_zeros(v, v)
        rest[table.at[0]] = table.residual
        at = table.at[0][part.read]
        evidence = Evidence(unknown, evidence.e, at, rest[part.read[at]])
    logits = given(network, evidence)(Endpoints(unknown))
    require_logits(logits)
    stays = (logits.argmax(dim=-1) == part.text) & ~part.at
    return logits[part.at], stays.sum(dim=1) / (~part.at).sum(dim=1).clamp(min=1)


def _ranked(kind: str, logits: Float[Tensor, "n v"], wanted: Tensor) -> dict[str, Tensor]:
    require_logits(logits)
    best = logits.topk(min(BEST, logits.shape[-1]), dim=-1).indices == wanted.unsqueeze(1)
    return {f"{kind}_top1": best[:, 0], f"{kind}_top{BEST}": best.any(dim=1)}


def _batches(whole: Damage, network: Network) -> list[Damage]:
    size = at_once(network, whole.text.shape[1])
    pairs = zip(whole.text.split(size), whole.read.split(size), strict=True)
    return [Damage(text, read) for text, read in pairs]


def _symbols(tokenizer: Tokenizer) -> list[str]:
    """Return the character of every token; NUL for special tokens."""
    specials = tokenizer.get_added_tokens_decoder()
    symbols = [
        "\0" if token in specials else tokenizers.decode(tokenizer, [token])
        for token in range(tokenizer.get_vocab_size())
    ]
    if long := [symbol for symbol in symbols if len(symbol) != 1]:
        raise ValueError(
            f"repair needs a tokenizer of characters or bytes, got one with the token {long[0]!r}"
        )
    return symbols


def _others(letter: str, symbols: Sequence[str]) -> list[int]:
    """Return the tokens of all other letters of the same case."""
    return [
        token
        for token, symbol in enumerate(symbols)
        if WORD.fullmatch(symbol) and symbol != letter and symbol.isupper() == letter.isupper()
    ]


def _one_of(choices: Sequence[Any], seed: int, *path: int) -> Any:
    draw = torch.randint(len(choices), (1,), generator=stream(seed, *path))
    return choices[int(draw)]


def _damaged(block: Tensor, places: range, token: int) -> Damage:
    read = block.clone()
    read[places.start : places.stop] = token
    return Damage(block.unsqueeze(0), read.unsqueeze(0))


def _together(parts: Sequence[Damage], blocks: Tokens) -> Damage:
    if not parts:
        return Damage(blocks[:0], blocks[:0])
    return Damage(torch.cat([p.text for p in parts]), torch.cat([p.read for p in parts]))
