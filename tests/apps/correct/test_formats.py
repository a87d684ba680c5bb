"""Formats of doubtful text: what is read, that all else survives, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsl.apps.correct.formats import (
    FORMATS,
    Format,
    encoding,
    hocr,
    inline,
    places,
    plain,
    read_file,
    recognised,
    tsv,
    words,
)
from dsl.apps.correct.formats.hocr import alternatives
from dsl.apps.correct.formats.words import Spelled, parse
from dsl.apps.correct.reading import Characters, Correction, Edit, Reading, Symbol
from tests.fuzz.cases import refused_or_read, texts

CHARACTER = "<span class='ocrx_cinfo' title='x_bboxes 1 2 3 4; x_conf {1}'>{0}</span>"
CHOICE = "<span class='ocrx_cinfo' id='choice_1_1_{0}' title='x_confs {2}'>{1}</span>"
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head><meta name='ocr-system' content='tesseract 5.3.0' /><style>a > b {} </style></head>
 <body><!-- <span class='ocrx_word'>no</span> -->
  <div class='ocr_page' id='page_1' title='image "a>b.png"; bbox 0 0 700 300; ppageno 0'>
   <div class='ocr_carea' id='block_1_1' title="bbox 30 30 521 76">
"""
WORDS_PAGE = (
    HEAD
    + """    <p class='ocr_par' id='par_1_1' lang='eng'>
     <span class='ocr_line' id='line_1_1' title="bbox 1 2 3 4; baseline 0 -5">
      <span class='ocrx_word' id='word_1_1' title='bbox 26 26 70 59; x_wconf 96'>The</span>
      <span class='ocrx_word' id='word_1_2' title='bbox 26 26 70; x_wconf 40'><em>c&amp;&#39;t</em>
      </span><br/>
     </span>
     <span class='ocr_line' id='line_1_2'>
      <span class='ocrx_word' id='word_1_3' title='x_wconf 7'>was</span>
     </span>
    </p>
    <p class='ocr_par'><span class='ocr_caption'><span class='ocrx_word'>here</span></span></p>
   </div></div></body></html>
"""
)
CHARACTERS_PAGE = (
    HEAD
    + f"""<p class='ocr_par'><span class='ocr_line'>
 <span class='ocrx_word' title='bbox 1 2 3 4; x_wconf 96'>
  {CHARACTER.format("l", "96")}
   <span class='ocrx_cinfo' id='lstm_choices_1_1_1'>
    {CHOICE.format(1, "l", 90)}
    {CHOICE.format(2, "i", 80)}
    {CHOICE.format(3, "&quot;", 75)}
    {CHOICE.format(4, "I", 0)}
   </span>
  {CHARACTER.format("&lt;", "99.5")}
   <span class='ocr_symbol' id='symbol_1_1_1'>
    <span class='ocrx_cinfo' id='timestep1_1_1'>
     {CHOICE.format(5, "", 65)}{CHOICE.format(6, "x", 34)}</span></span>
 </span></span></p></div></div></body></html>
"""
)
TABLE = (
    tsv.HEADER
    + """
1\t1\t0\t0\t0\t0\t0\t0\t700\t300\t-1\t
5\t1\t1\t1\t1\t1\t26\t26\t44\t33\t96.909096\tThe
5\t1\t1\t1\t1\t2\t83\t26\t75\t33\t40.5\tc&t
5\t1\t1\t1\t2\t1\t83\t26\t75\t33\t7\twas
5\t1\t1\t1\t2\t2\t83\t26\t75\t33\t95\t\x20
5\t1\t2\t1\t1\t1\t83\t26\t75\t33\t0.000000\there
"""
)
OURS = {
    "words": [
        {"text": "hello", "confidence": 0.9,
         "alternatives": [{"text": "hallo", "confidence": 0.05}, {"text": "hell", "conf": 0.01},
                          {"text": "jallo", "confidence": 0.02}]},
        {"characters": [{"text": "y", "confidence": 0.6,
                         "alternatives": [{"text": "v", "confidence": 0.3}]},
                        {"text": ""}, {"text": "\u00fc\""[0]}]},
    ]
}  # fmt: skip
WHISPER = {
    "text": " Hello, world.", "language": "en",
    "segments": [{"id": 0, "text": " Hello, world.", "tokens": [1, 2],
                  "words": [{"word": " Hello,", "start": 0, "end": 0.4, "probability": 0.9},
                            {"word": " world.", "start": 1, "end": 2, "probability": 0.4}]}],
}  # fmt: skip
WHISPER_CPP = {
    "result": {"language": "en"},
    "transcription": [{"text": " And so", "tokens": [{"text": "[_BEG_]", "p": 0.9},
                                                     {"text": " An", "p": 0.8},
                                                     {"text": "d", "p": 0.7}]}],
}  # fmt: skip
VOSK = {"result": [{"conf": 0.9, "word": "the", "start": 1}, {"conf": 0.3, "word": "cat"}],
        "text": "the cat"}  # fmt: skip
SAMPLES = {
    "plain": ["", "a", "The cat\r\nsat. é\U0001f642_", "\ufeffA mark."],
    "inline": [
        "", "The {modem|0.4} c{o|0.9|a:0.06|::0.02}rn {}{?}", r"\{ \} \| \\ | a|b",
        r"{\||0.5|\}:0.1}", "\ufeff{a|1}", "{?|0.2} { |0.3} {a\nb|0.5}",
    ],
    "words": [
        json.dumps(OURS), json.dumps(OURS, indent=1, ensure_ascii=False), json.dumps(WHISPER),
        json.dumps(WHISPER_CPP), json.dumps(VOSK), json.dumps(OURS["words"]),
        '\ufeff [{"word": "a\\"\\u00e9\\ud83d\\ude42\\n/\\/"}]', '{"words": []}',
    ],
    "hocr": [WORDS_PAGE, CHARACTERS_PAGE, HEAD, WORDS_PAGE.replace("\n", "\r\n")],
    "tsv": [TABLE, TABLE.replace("\n", "\r\n"), tsv.HEADER, TABLE.rstrip("\n"), "\ufeff" + TABLE],
}  # fmt: skip
VISIBLE = "xé\U0001f642{}|\\<>&\"';:?_/"
NEW = {kind: VISIBLE + (" \n" if kind in ("plain", "inline", "hocr") else "") for kind in SAMPLES}
"""A table has no line breaks, and a space at the beginning of a word means something in a list."""
EACH = [(kind, source) for kind, sources in SAMPLES.items() for source in sources]


def corrected(reading: Reading, *edits: Edit) -> Correction:
    return Correction(reading, edits, [math.nan] * len(reading.symbols), "none")


def one(reading: Reading, place: int) -> Symbol:
    return reading.symbols[place]


class TestLaws:
    @pytest.mark.parametrize("kind, source", EACH)
    def test_without_edits_a_file_is_as_it_was(self, kind: str, source: str) -> None:
        reading = FORMATS[kind].read(source)
        assert corrected(reading).file(FORMATS[kind].escape) == source
        assert reading.kind == kind

    @pytest.mark.parametrize("kind, source", EACH)
    def test_what_is_written_in_a_place_is_read_there(self, kind: str, source: str) -> None:
        chosen, reading = FORMATS[kind], FORMATS[kind].read(source)
        texts = [symbol.text for symbol in reading.symbols]
        for place, symbol in enumerate(reading.symbols):
            if place in reading.separators:
                assert symbol.begin == symbol.end
                continue
            new = NEW[kind][place % len(NEW[kind])]
            edit = Edit(place, 1, symbol.text, new, 1.0)
            again = chosen.read(corrected(reading, edit).file(chosen.escape))
            assert [s.text for s in again.symbols] == [*texts[:place], new, *texts[place + 1 :]]

    @pytest.mark.parametrize("kind", list(SAMPLES))
    def test_every_character_can_be_written(self, kind: str) -> None:
        chosen, source = FORMATS[kind], SAMPLES[kind][1]
        reading = chosen.read(source)
        for new in NEW[kind]:
            edit = Edit(0, 1, reading.symbols[0].text, new, 1.0)
            assert one(chosen.read(corrected(reading, edit).file(chosen.escape)), 0).text == new

    @pytest.mark.parametrize("kind, source", [each for each in EACH if each[0] != "plain"])
    def test_a_format_is_recognised(self, kind: str, source: str) -> None:
        suffix = {"inline": ".inline", "words": ".json", "hocr": ".hocr", "tsv": ".tsv"}[kind]
        assert recognised(source, suffix.upper()).name == kind or not source.strip("\ufeff")
        if kind != "inline" and source:
            assert recognised(source, ".txt").name == kind

    def test_text_is_text(self) -> None:
        for source in ("", "a {b} c", "{} | []", "[1] a list", "{x|y}", "level\tpage", "<p>a</p>"):
            assert recognised(source, ".txt").name == recognised(source).name == "plain"


class TestPlain:
    def test_every_character_is_a_symbol(self) -> None:
        reading = plain.read("a_\nb")
        assert reading.text == "a_\nb" and not any(s.is_gap for s in reading.symbols)
        assert one(reading, 3) == Symbol("b", 3, 4)

    def test_a_gap_is_one_if_somebody_says_so(self) -> None:
        reading = plain.read("a_b", gap="_")
        assert [s.is_gap for s in reading.symbols] == [False, True, False]
        with pytest.raises(ValueError, match="one character, got '__'"):
            plain.read("a", gap="__")

    def test_a_mark_at_the_beginning_is_no_text(self) -> None:
        assert plain.read("\ufeffab").text == "ab"

    def test_a_long_text_is_columns_and_not_objects(self) -> None:
        text = "the cat " * 1_250_000
        began = time.process_time()
        symbols = Characters(text, range(len(text)), range(1, len(text) + 1))
        assert symbols[-1] == Symbol(" ", 9_999_999, 10_000_000)
        assert [symbol.text for symbol in symbols[4:7]] == ["c", "a", "t"]
        assert time.process_time() - began < 1

    @pytest.mark.slow
    def test_ten_megabytes_on_a_line(self) -> None:
        code = (
            "import resource\nfrom dsl.apps.correct.formats import read_file\n"
            "assert len(read_file(None, b'the cat ' * 1_250_000).symbols) == 10_000_000\n"
            "used = resource.getrusage(resource.RUSAGE_SELF)\n"
            "print(used.ru_utime, used.ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        seconds, kilobytes = map(float, done.stdout.split())
        assert seconds < 60 and kilobytes < 2**20


class TestInline:
    def test_confidences_and_alternatives(self) -> None:
        reading = inline.read(r"a{bc|0.4}{d|.5|\|:0.25|e:1e-3}{}")
        assert reading.text == "abcd_"
        assert [s.confidence for s in reading.symbols] == [None, 0.4, 0.4, 0.5, None]
        assert one(reading, 3).alternatives == (("|", 0.25), ("e", 0.001))
        assert one(reading, 4).is_gap

    @pytest.mark.parametrize(
        "source, message",
        [
            (
                "ab\nc{d|1.5}",
                "line 2, column 2: the confidence of 'd' must lie in 0 … 1, got '1.5'",
            ),
            ("{d|nan}", "got 'nan'"),
            ("{d|}", "got ''"),
            ("{d|0.5|e}", "expected character:confidence, got 'e'"),
            ("{d|0.5|e:2}", "the confidence of 'e'"),
            ("{de|0.5|e:0.1}", "alternatives must be of one character, got 'de'"),
            ("{d}", "expected {text|confidence}, got '{d}'"),
            ("{?3}", "three are {}{}{}"),
            ("a{b", "got an unclosed {"),
            ("a}b", "this } has no opening brace"),
            (r"C:\dir", "line 1, column 3: a backslash must be followed by"),
            ("a\\", "a backslash must be followed by"),
        ],
    )
    def test_what_is_refused(self, source: str, message: str) -> None:
        with pytest.raises(ValueError) as error:
            inline.read(source)
        assert message in str(error.value)


class TestWords:
    def test_our_words(self) -> None:
        reading = words.read(json.dumps(OURS))
        assert reading.text == "hello y_ü" and reading.separators == {5}
        assert [s.confidence for s in reading.symbols] == [0.9] * 5 + [None, 0.6, None, None]
        assert one(reading, 0).alternatives == (("j", 0.02),)
        assert one(reading, 1).alternatives == (("a", pytest.approx(0.07)),)
        assert one(reading, 6).alternatives == (("v", 0.3),)
        assert one(reading, 7).is_gap

    @pytest.mark.parametrize(
        "data, text, confidences",
        [
            (WHISPER, " Hello, world.", [None, *[0.9] * 6, None, *[0.4] * 6]),
            (WHISPER_CPP, " And", [None, 0.8, 0.8, 0.7]),
            (VOSK, "the cat", [0.9] * 3 + [None] + [0.3] * 3),
            ([{"word": "a", "score": 0.5}, {"w": "b"}], "a b", [0.5, None, None]),
            ({"characters": [{"text": "a", "p": 1}, {"text": " "}]}, "a ", [1.0, None]),
            ({"segments": [{"text": "a b"}, {"words": [], "text": "c"}]}, "a b c", [None] * 5),
        ],
    )
    def test_lists_of_recognisers(
        self, data: Any, text: str, confidences: list[float | None]
    ) -> None:
        reading = words.read(json.dumps(data))
        assert reading.text == text
        assert [s.confidence for s in reading.symbols] == confidences

    @pytest.mark.parametrize(
        "source, message",
        [
            ("", "not JSON: Expecting value at line 1, column 1"),
            ('{"words": [\n{]}', "not JSON: Expecting property name enclosed in double quotes at"),
            ('[{"text": "a"}] b', "extra text at line 1, column 17"),
            ("[" * 100_000, "nested too deeply"),
            ("5", "expected objects with a text, got '5'"),
            ('["a"]', "expected objects with a text, got a string"),
            ('{"a": 1}', "expected an object with words, characters or a text, got 'a'"),
            ('[{"text": "abc",\n"conf": 1.2}]', "column 12: conf of 'abc' must lie in 0"),
            ('[{"text": "abc", "p": NaN}]', "expected a JSON number, got NaN"),
            ('[{"text": "abc", "p": "0.5"}]', "p of 'abc' must be a number, got '0.5'"),
            ('[{"text": "abc", "p": true}]', "must be a number, got True"),
            ('[{"text": "abc", "p": 1e999}]', "must be finite, got inf"),
            ('{"characters": [{"text": "ab"}]}', "a character must have one character, got 'ab'"),
            ('{"characters": [5]}', "expected characters with a text, got '5'"),
            ('{"characters": 5}', "characters must be a list, got '5'"),
            ('[{"text": "a", "alternatives": [5]}]', "expected alternatives with a text, got '5'"),
            ('[{"text": "a", "alternatives": "b"}]', "alternatives must be a list, got a string"),
            ('[{"text": "\\ud800"}]', "unpaired surrogate"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, source: str, message: str) -> None:
        with pytest.raises(ValueError) as error:
            words.read(source)
        assert message in str(error.value)

    @given(data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=8,
    ), plainly=st.booleans())  # fmt: skip
    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    def test_json_is_what_python_reads_and_strings_stand_where_they_say(
        self, data: Any, plainly: bool
    ) -> None:
        source = json.dumps(data, ensure_ascii=plainly)

        def checked(node: Any) -> Any:
            if isinstance(node, Spelled):
                parts = [(source[b:e], c) for b, e, c in node.characters(source)]
                assert all(json.loads(f'"{raw}"') == c for raw, c in parts)
                assert "".join(raw for raw, _ in parts) == source[node.begin : node.end]
                return node.text
            if isinstance(node, dict):
                return {key: checked(value) for key, value in node.items()}
            return [checked(each) for each in node] if isinstance(node, list) else node

        assert checked(parse(source)) == json.loads(source)


class TestHocr:
    def test_words_lines_and_paragraphs(self) -> None:
        reading = hocr.read(WORDS_PAGE)
        assert reading.text == "The c&'t\nwas\n\nhere"
        at = WORDS_PAGE.index("&amp;")
        assert one(reading, 5) == Symbol("&", at, at + 5, 0.4)
        assert [one(reading, i).confidence for i in (0, 3, 4, 9, 14)] == [
            0.96,
            None,
            0.4,
            0.07,
            None,
        ]
        assert reading.separators == {3, 8, 12, 13}

    def test_characters_and_choices(self) -> None:
        reading = hocr.read(CHARACTERS_PAGE)
        assert reading.text == "l<"
        first, second = reading.symbols
        assert (first.confidence, second.confidence) == (0.96, 0.995)
        assert dict(first.alternatives) == {
            "i": pytest.approx(0.96 * math.exp(-2)), '"': pytest.approx(0.96 * math.exp(-3)),
        }  # fmt: skip
        assert second.alternatives == ()

    def test_choices_that_follow_the_word(self) -> None:
        groups = "".join(
            f"<span class='ocrx_cinfo' id='lstm_choices_{i}'>{CHOICE.format(i, a, 90)}"
            f"{CHOICE.format(i, b, 85)}</span>\n"
            for i, (a, b) in enumerate(["ao", "tf"])
        )
        word = f"<span class='ocrx_word' title='x_wconf 50'>at\n {groups}</span>"
        a, t = hocr.read(word).symbols
        assert a.alternatives == (("o", pytest.approx(0.5 / math.e)),)
        assert t.alternatives == (("f", pytest.approx(0.5 / math.e)),)

    def test_a_choice_that_is_likelier_than_what_was_read(self) -> None:
        assert alternatives("a", 0.9, [("b", 0.9), ("a", 0.5)]) == (("b", 1.0),)
        assert alternatives("a", None, [("b", 0.9)]) == ()

    def test_references_that_are_no_character(self) -> None:
        reading = hocr.read("<b class='ocrx_word'>a&nope;&NotEqualTilde;& b&#x41;&#0;</b>")
        assert reading.text == "a\ufffd\ufffd& bA\ufffd"

    @pytest.mark.parametrize(
        "source, message",
        [
            ("", "expected hOCR, with elements of class ocr_page and ocrx_word"),
            ("<html><p>a</p></html>", "expected hOCR"),
            ("<b class='ocr_page'><i class='ocr_line'>a</i></b>", "got lines without words"),
            ("<b class='ocrx_word'>a", "line 1, column 1: this word does not end"),
            ("<b class='ocrx_word'>a</b", "line 1, column 23: expected the end of '</b'"),
            ("a\n<b class='ocrx_word>a</b>", "line 2, column 1: expected the end of"),
            ("<!-- a", "expected the end of '<!-- a'"),
            ("<script> a", "expected the end of '<script> a'"),
            ("<b class='ocrx_word'><i class='ocrx_word'>a</i></b>", "a word within a word"),
            ("<i>" * 1000, "nested too deeply"),
            ("<b class='ocrx_word' title='x_wconf 101'>a</b>",
             "line 1, column 1: x_wconf must lie in 0 … 100, got '101'"),
            ("<b class='ocrx_word' title='x_wconf nan'>a</b>", "got 'nan'"),
            (CHARACTERS_PAGE.replace("x_conf 96", "x_conf -1"), "x_conf must lie in 0 … 100, got"),
            ('<!DOCTYPE a [<!ENTITY b "&c;&c;">]><b class="ocrx_word">&b;</b>',
             "line 1, column 14: the file declares entities"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, source: str, message: str) -> None:
        with pytest.raises(ValueError) as error:
            hocr.read(source)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        "piece", ["<a ", "<a '", "<", "&", "&#", "<!", "</a>", "<i></i>", "<style>"]
    )
    def test_time_is_linear_in_broken_markup(self, piece: str) -> None:
        many = 20_000 if piece in ("<a ", "<a '", "<!", "<style>") else 6_000  # refused early
        began = time.process_time()
        refused_or_read(lambda: hocr.read("<b class='ocrx_word'>a</b>" + piece * many))
        assert time.process_time() - began < 8


class TestTsv:
    def test_words_lines_and_paragraphs(self) -> None:
        reading = tsv.read(TABLE)
        assert reading.text == "The c&t\nwas\n\nhere"
        assert [one(reading, i).confidence for i in (4, 8, 13)] == [0.405, 0.07, 0.0]
        assert reading.separators == {3, 7, 11, 12}

    def test_a_cell_is_one_line(self) -> None:
        assert tsv.escape("a\tb\r\nc") == "a b  c"

    @pytest.mark.parametrize(
        "source, message",
        [
            ("", "expected the columns level page_num"),
            ("a\tb", r"got 'a\tb'"),
            (tsv.HEADER + "\n5\t1", "line 2, column 1: expected 12 columns, got 2"),
            (TABLE.replace("40.5", "140.5"), "line 4, column 31: the confidence of 'c&t' must lie"),
            (TABLE.replace("40.5", "nan"), "0 … 100, got 'nan'"),
            (TABLE.replace("40.5", "-2"), "0 … 100, got '-2'"),
        ],
    )
    def test_what_is_refused(self, source: str, message: str) -> None:
        with pytest.raises(ValueError) as error:
            tsv.read(source)
        assert message in str(error.value)


class TestFiles:
    @pytest.mark.parametrize("text", ["a é", "\ufeffa é", "\ufeff{a|0.5}", "\ufeff" + TABLE])
    @pytest.mark.parametrize("kind", ["utf-8", "utf-16-le", "utf-16-be"])
    def test_bytes_come_back(self, text: str, kind: str) -> None:
        if kind != "utf-8":
            text = "\ufeff" + text.removeprefix("\ufeff")
        data = text.encode(kind)
        reading = read_file(None, data)
        assert encoding(data) == kind and reading.source.encode(kind) == data
        assert reading.text == read_file(None, text.removeprefix("\ufeff").encode()).text

    @pytest.mark.parametrize(
        "data, message",
        [
            (b"caf\xe9", "a.txt is neither UTF-8 nor UTF-16: byte 0xE9 at 3"),
            ("grün ".encode() + "grün".encode("latin-1"), "byte 0xFC at 8"),
            (b"\xff\xfea", "neither UTF-8 nor UTF-16"),
            (b"PK\x03\x04\0", "a.txt is not text: it has a zero byte at 4"),
        ],
    )
    def test_what_is_no_text(self, data: bytes, message: str) -> None:
        with pytest.raises(ValueError) as error:
            read_file(Path("a.txt"), data)
        assert message in str(error.value)

    def test_a_kind_that_is_named_counts(self) -> None:
        assert read_file(Path("a.json"), b'{"words": []}', "plain").text == '{"words": []}'
        with pytest.raises(ValueError, match=r"^a.json as tsv: expected the columns"):
            read_file(Path("a.json"), b'{"words": []}', "tsv")
        with pytest.raises(ValueError, match=r"the format must be one of .*hocr.*; got 'docx'"):
            FORMATS.find("docx", "the format")

    def test_an_empty_file(self) -> None:
        assert len(read_file(None, b"").symbols) == 0
        for name in ("a.hocr", "a.tsv", "a.json"):
            with pytest.raises(ValueError, match=f"^{name} as "):
                read_file(Path(name), b"")

    def test_places_are_lines_and_columns_from_1(self) -> None:
        source = "ab\n\ncd"
        assert list(places(source, range(7))) == [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 1),
            (3, 1),
            (3, 2),
            (3, 3),
        ]
        assert list(places(source, [1, 1, 5])) == [(1, 2), (1, 2), (3, 2)]


@pytest.mark.parametrize("kind", list(SAMPLES))
def test_damaged_files_are_read_or_refused(kind: str) -> None:
    chosen = FORMATS[kind]

    @given(source=texts(SAMPLES[kind]))
    @settings(max_examples=60, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    def run(source: str) -> None:
        found: list[Reading] = []
        refused_or_read(lambda: found.append(chosen.read(source)))
        for reading in found:
            assert corrected(reading).file(chosen.escape) == source
            marked(chosen, reading)

    run()


def marked(chosen: Format, reading: Reading) -> None:
    """Write something else at the first places, and read it there."""
    places = [i for i in range(len(reading.symbols)) if i not in reading.separators]
    for place in places[:3]:
        edit = Edit(place, 1, one(reading, place).text, "x", 1.0)
        again = chosen.read(corrected(reading, edit).file(chosen.escape))
        assert one(again, place).text == "x"


@pytest.mark.parametrize(
    "inside", ["a" * 200_000, "a " * 50_000, "a=" * 50_000, "a" + " " * 200_000]
)
def test_long_tags_take_linear_time(inside: str) -> None:
    """Quadratic time would be minutes."""
    began = time.process_time()
    tag = next(hocr.tokens(f"<p {inside} class='b'>"))
    assert tag.attributes["class"] == "b"
    assert time.process_time() - began < 5
