"""The cache of corpora under processes that are killed, that come at once, and odd files."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from dsl.data import catalogue, windows
from dsl.data.blocks import read_texts
from dsl.data.catalogue import Origin, origin_of, register
from dsl.data.corpora import prepare, verify
from dsl.data.sources import default_cache
from dsl.data.tokenizers import characters, read
from dsl.data.windows import tokenise


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def killed(cache: Path, where: str) -> None:
    """Prepare and encode a corpus, and be killed in the middle of one of them."""

    def make(*_: object) -> Iterator[bytes]:
        yield b"half"
        if where == "prepare":
            os.kill(os.getpid(), signal.SIGKILL)

    def encoded(*_: object) -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    catalogue.CORPORA._loaded["mine"] = Origin(make, 1, None, "here", "mine")
    windows._encoded = encoded  # type: ignore[assignment]
    tokenise(prepare("mine", cache), "train", characters("half"))


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.CORPORA, "_loaded", dict(catalogue.CORPORA._loaded))
    register("mine", Origin(lambda *_: [b"half a text ", b"and the rest"], 2, None, "here", "mine"))


@pytest.mark.parametrize("where", ["prepare", "tokenise"])
def test_what_a_killed_process_left_is_swept(where: str, mine: None, tmp_path: Path) -> None:
    process = FORK.Process(target=killed, args=(tmp_path, where))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert list(tmp_path.rglob("*.part"))
    corpus = prepare("mine", tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    verify(corpus)
    alphabet = characters(corpus.characters())
    tokens = tokenise(corpus, "train", alphabet)
    assert alphabet.decode(tokens.tolist()) == corpus.read("train").decode()
    assert left(tmp_path)[:2] == ["corpus.json", "corpus.txt"]
    assert [Path(name).suffix for name in left(tmp_path)[2:]] == [".tokens", ".sha256"]


def make_one(cache: Path, begin: Barrier, made: SimpleQueue[str]) -> None:
    def make(*_: object) -> Iterator[bytes]:
        made.put("made")
        for _ in range(20):
            time.sleep(0.02)
            yield b"abc"

    catalogue.CORPORA._loaded["mine"] = Origin(make, 1, None, "here", "mine")
    begin.wait(60)
    corpus = prepare("mine", cache)
    verify(corpus)
    assert len(tokenise(corpus, "train", characters("abc"))) == 58


def test_two_processes_make_a_corpus_once(tmp_path: Path) -> None:
    begin, made = FORK.Barrier(2), FORK.SimpleQueue()
    both = [FORK.Process(target=make_one, args=(tmp_path, begin, made)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert made.get() == "made" and made.empty()
    assert len(left(tmp_path)) == 4


def test_changed_files_of_the_cache_are_refused(mine: None, tmp_path: Path) -> None:
    alphabet = characters("".join(sorted(set("half a text and the rest"))))
    corpus = prepare("mine", tmp_path)
    whole = tokenise(corpus, "train", alphabet).tobytes()
    (path,) = tmp_path.rglob("*.tokens")
    path.write_bytes(whole[: len(whole) // 4 * 2])
    with pytest.raises(ValueError, match=r"\.tokens has changed since it was made"):
        tokenise(corpus, "train", alphabet)
    path.write_bytes(whole)
    assert tokenise(corpus, "train", alphabet).tobytes() == whole
    corpus.path.write_bytes(b"A" * corpus.size)
    with pytest.raises(ValueError, match="has changed since it was made"):
        prepare("mine", tmp_path)


def test_a_file_must_be_regular_and_text(tmp_path: Path) -> None:
    """An error comes before a pipe is opened, which would hold the lock for ever."""
    for content in (b"a\0b", b"caf\xe9 au lait", b"cut in a character \xc3"):
        (tmp_path / "a.txt").write_bytes(content)
        with pytest.raises(ValueError, match=r"must be text|is not UTF-8"):
            prepare(str(tmp_path / "a.txt"), tmp_path / "cache")
    os.mkfifo(tmp_path / "b.txt")
    with pytest.raises(ValueError, match=r"b\.txt must be a regular file"):
        prepare(str(tmp_path), tmp_path / "cache")
    with pytest.raises(ValueError, match=r"b\.txt must be a regular file"):
        read(tmp_path / "b.txt")


ODD = {
    "deep": (b"[" * 100_000 + b"]" * 100_000, "is not JSON: nested too deeply"),
    "latin": (b'{"text": "caf\xe9"}', "is not JSON: .*utf-8"),
    "half": (rb'{"text": "\ud83d"}', "is not JSON: .*surrogates"),
    "digits": (b'{"text": ' + b"9" * 5000 + b"}", "is not JSON"),
    "list": (b"[]", 'has no "text"'),
    "number": (b'{"text": 5}', 'has no "text"'),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_lines_are_named_by_both_readers(name: str, tmp_path: Path) -> None:
    content, reason = ODD[name]
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + content + b"\n")
    for reader in (
        lambda: read_texts(path, separate_lines=False),
        lambda: prepare(str(path), tmp_path / "cache"),
    ):
        with pytest.raises(ValueError, match=f"line 2, {reason}") as caught:
            reader()
        assert type(caught.value) is ValueError
    assert left(tmp_path) == ["odd.jsonl"]


def test_a_line_ends_at_a_newline_only(tmp_path: Path) -> None:
    """Not at the other characters that end lines elsewhere, which JSON leaves as they are."""
    texts = ["a\u2028b", "c\x85d", "e\rf"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in texts))
    assert read_texts(path, separate_lines=True) == texts


def test_a_name_of_ones_own(tmp_path: Path, mine: None) -> None:
    with pytest.raises(ValueError, match="there is a corpus 'text8' already"):
        register("text8", origin_of("cyclic-5"))
    with pytest.raises(ValueError, match="a corpus's name must have letters"):
        register("a/b", origin_of("cyclic-5"))
    register("toy", origin_of("cyclic-5"))
    assert prepare("toy", tmp_path).sha256 == prepare("cyclic-5", tmp_path).sha256
    with pytest.raises(ValueError, match=r"expected one of .*toy"):
        prepare("nothing", tmp_path)


def test_a_description_that_is_none_is_refused(tmp_path: Path) -> None:
    description = prepare("cyclic-5", tmp_path).path.with_name("corpus.json")
    for content in ("{", "[]", "5", '{"path": 5}', '{"path": "a", "splits": {"train": 1}}'):
        description.write_text(content)
        with pytest.raises(ValueError, match=r"corpus\.json (is not JSON|was not written by)"):
            prepare("cyclic-5", tmp_path)


def test_the_cache_is_where_one_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DSL_CACHE", raising=False)
    assert default_cache() == tmp_path / "dsl"
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "other"))
    assert default_cache() == tmp_path / "other"
