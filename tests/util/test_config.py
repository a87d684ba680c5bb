"""Plain data as dataclasses: what fits is read, what does not is refused in one line."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from dsl._util.config import DEEPEST, parse_yaml, read, read_yaml, shown


@dataclass(frozen=True)
class Inner:
    size: int = 1
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.5
    on: bool = False
    kind: Literal["small", "large"] = "small"
    inner: Inner = Inner()
    more: dict[str, Any] | None = None


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(-1e6, 1e6)
    | st.text("ab "),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=12,
)


class TestYaml:
    @for_all(PLAIN)
    @settings(max_examples=100, deadline=None)
    def test_what_was_written_is_read(self, data: object) -> None:
        assert parse_yaml(yaml.safe_dump(data), "it") == data

    def test_nothing_is_none_and_an_alias_of_a_scalar_is_harmless(self) -> None:
        assert parse_yaml("", "it") is None
        assert parse_yaml("a: &x 5\nb: *x\n", "it") == {"a": 5, "b": 5}

    @pytest.mark.parametrize(
        "text, message",
        [
            ("a: &x [1]\nb: *x\n", "aliases of lists and mappings"),
            ("a: &x {c: 1}\nb: *x\n", "aliases of lists and mappings"),
            ("&x [*x]", "aliases of lists and mappings"),
            ("&x {a: *x}", "aliases of lists and mappings"),
            ("a: &x {c: 1}\nb: {<<: *x}\n", "aliases of lists and mappings"),
            ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "nested"),
            ("[" * 20_000, "nested"),
            ("[" * 20_000 + "]" * 20_000, "nested"),
            ("{a: " * 5_000 + "1" + "}" * 5_000, "nested"),
            ("a: 2024-13-45", "month must be in"),
            ("a: 2024-02-31", "day is out of range"),
            ("a: 2024-01-01 99:00:00", "hour must be in"),
            ("a: [", "expected the node content"),
            ("a: b: c", "mapping values are not allowed"),
            ("a: !!python/object:os.system {}", "type tags such as"),
            ("a: 1\n---\nb: 2\n", "expected a single document"),
            ("\x00", "unacceptable character"),
            ("a: *x", "undefined alias"),
        ],
    )
    def test_what_bites_is_refused_in_one_line(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as refused:
            parse_yaml(text, "the recipe")
        said = str(refused.value)
        assert said.startswith("the recipe") and "\n" not in said and len(said) < 500

    def test_a_bomb_of_aliases_is_neither_expanded_nor_repeated(self) -> None:
        lines = ["a0: &a0 [lol, lol]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
        with pytest.raises(ValueError, match="aliases of lists and mappings") as refused:
            parse_yaml("\n".join(lines), "the bomb")
        assert len(str(refused.value)) < 200

    def test_the_deepest_nest_that_is_allowed_is_read(self) -> None:
        found = parse_yaml("[" * (DEEPEST - 1) + "1" + "]" * (DEEPEST - 1), "it")
        for _ in range(DEEPEST - 1):
            (found,) = found
        assert found == 1

    def test_a_file_is_named_where_it_is_wrong(self, tmp_path: Path) -> None:
        path = tmp_path / "made.yaml"
        path.write_text("a: {b: 1}\n")
        assert read_yaml(path) == {"a": {"b": 1}}
        path.write_bytes(b"a: \xff\n")
        with pytest.raises(ValueError, match=r"made\.yaml is not UTF-8"):
            read_yaml(path)
        path.write_text("a: [")
        with pytest.raises(ValueError, match=r"made\.yaml is not valid YAML"):
            read_yaml(path)


class TestRead:
    @pytest.mark.parametrize(
        "value",
        [
            Outer("a"),
            Outer("b", 2, True, "large", Inner(3, 0.25), {"x": [1, {"y": None}]}),
            Outer("", math.pi, False, "small", Inner(-7)),
        ],
    )
    def test_a_dataclass_survives_the_trip(self, value: Outer) -> None:
        assert read(Outer, asdict(value), "it") == value
        assert read(Outer, parse_yaml(yaml.safe_dump(asdict(value)), "it"), "it") == value

    def test_people_write_3e_4_for_a_number(self) -> None:
        assert read(Outer, parse_yaml("{name: a, rate: 3e-4}", "it"), "it").rate == 3e-4

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"nmae": "b"}, "unknown key 'nmae'; expected some of name, rate, on"),
            ({"name": 5}, r"expected str, got 5 @ \$\.name"),
            ({"rate": "fast"}, r"expected float, got 'fast' @ \$\.rate"),
            ({"rate": "nan"}, "expected float, got 'nan'"),
            ({"rate": math.nan}, "expected a finite number, got nan"),
            ({"rate": math.inf}, "expected a finite number, got inf"),
            ({"rate": True}, "expected float, got True"),
            ({"rate": 10**400}, "expected a finite number, got a huge number"),
            ({"on": 1}, "expected bool, got 1"),
            ({"on": "true"}, "expected bool, got 'true'"),
            ({"kind": "middle"}, r"one of 'small', 'large'; got 'middle' @ \$\.kind"),
            ({"kind": ["small"]}, "one of 'small', 'large'; got a list of 1"),
            ({"inner": 5}, "inner"),
            ({"inner": {"size": 2.5}}, r"expected int, got 2\.5 @ \$\.inner\.size"),
            ({"inner": {"size": True}}, "expected int, got True"),
            ({"inner": {"size": 2**63}}, "expected an int of 64 bits"),
            ({"inner": {"size": None}}, "expected int, got None"),
            ({"more": {5: 1}}, "a mapping with names as keys"),
            ({"more": [1]}, "a mapping with names as keys, got a list of 1"),
        ],
    )
    def test_what_does_not_fit_is_named_with_its_place(
        self, change: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message) as refused:
            read(Outer, {"name": "a"} | change, "the thing")
        said = str(refused.value)
        assert said.startswith("the thing") and "\n" not in said and len(said) < 500

    def test_what_is_missing_is_named(self) -> None:
        with pytest.raises(ValueError, match="the thing: missing 'name'"):
            read(Outer, {}, "the thing")

    @pytest.mark.parametrize("data", [None, 5, "text", [], [{"name": "a"}]])
    def test_only_mappings_are_read(self, data: object) -> None:
        with pytest.raises(ValueError, match="the thing must be a mapping of fields, got"):
            read(Outer, data, "the thing", keys="fields")


@for_all(PLAIN | st.integers() | st.text())
@settings(max_examples=100, deadline=None)
def test_a_value_is_shown_in_a_few_letters(value: object) -> None:
    assert 0 < len(shown(value)) <= 82 and "\n" not in shown(value)
    assert shown([[value] * 1000] * 1000) == "a list of 1000"
