"""Arguments of public functions, and what callers hear who pass something else."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as for_all
from hypothesis import strategies as st

from dsl._util.validate import finite_number, probability, sequence, text, whole_number, within

NO_NUMBERS = [None, "5", "", b"5", [5], {}, object(), True, 1j, torch.tensor([1, 2]), int]


@for_all(st.integers(-(2**63) + 1, 2**63 - 1))
def test_whole_numbers_are_returned(n: int) -> None:
    assert whole_number("n", n) == n
    assert whole_number("n", n, least=n) == n
    with pytest.raises(ValueError, match=f"n must be at least {n + 1}, got {n}"):
        whole_number("n", n, least=n + 1)


@pytest.mark.parametrize("n", [np.int64(3), torch.tensor(3), np.uint8(3)])
def test_whole_numbers_of_other_libraries_are_python_ones(n: Any) -> None:
    assert whole_number("n", n) == 3 and type(whole_number("n", n)) is int


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2.0, math.nan, np.float64(2), torch.tensor(2.0)])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^steps must be a whole number, got "):
        whole_number("steps", value)


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**5000], ids=["2^63", "-2^63", "huge"])
def test_numbers_that_no_tensor_holds_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=r"^steps must be a whole number of 64 bits") as refused:
        whole_number("steps", value)
    assert len(str(refused.value)) < 200


@for_all(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9))
def test_finite_numbers_are_returned(x: float) -> None:
    assert finite_number("x", x) == x and type(finite_number("x", x)) is float
    assert finite_number("x", x, least=float(x)) == x


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^rate must be a number, got "):
        finite_number("rate", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
def test_numbers_out_of_bounds_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^rate must be finite and at least 0, got "):
        finite_number("rate", value, least=0.0)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_beyond_all_floats_is_refused(digits: int) -> None:
    with pytest.raises(ValueError, match=r"^rate must be a number, got a huge number"):
        finite_number("rate", 10**digits)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.3, np.float32(0.5)])
def test_probabilities_are_returned(value: Any) -> None:
    assert probability("p", value) == value


@pytest.mark.parametrize("value", [-1e-9, 1 + 1e-9, 2, math.nan, None, "0.5"])
def test_what_is_no_probability_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^p must "):
        probability("p", value)


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"]])
def test_only_text_is_text(value: Any) -> None:
    assert text("name", "") == "" and text("name", "a") == "a"
    with pytest.raises(ValueError, match=r"^name must be a text, got "):
        text("name", value)


@pytest.mark.parametrize("value", [None, 5, "abc", b"abc", {1: 2}, {1}, iter([1])])
def test_only_lists_are_lists(value: Any) -> None:
    for good in ([], [1], (1, 2), range(3)):
        assert sequence("rows", good, "rows") is good
    with pytest.raises(ValueError, match=r"^rows must be a list of things, got "):
        sequence("rows", value, "things")


@pytest.mark.parametrize("check", [whole_number, finite_number, text])
def test_a_large_value_is_not_repeated_whole(check: Callable[[str, Any], Any]) -> None:
    with pytest.raises(ValueError) as refused:
        check("it", [["long"] * 100] * 100)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@dataclass(frozen=True)
class Options:
    """Options of a command."""

    n: int = 3
    batch_size: int | None = None
    snr: tuple[float, ...] = (1.0, 2.5)


@pytest.mark.parametrize(
    "options, message",
    [
        (Options(n=0), "^-n must lie in 1 … 1,000, got 0"),
        (Options(n=1001), "^-n must lie in 1 … 1,000, got 1001"),
        (Options(batch_size=0), "^--batch-size must lie in 1 … 4, got 0"),
        (Options(snr=(1.0, -0.5)), "^--snr must lie in 0 … 9, got -0.5"),
        (Options(snr=(math.nan,)), "^--snr must lie in 0 … 9, got nan"),
    ],
)
def test_an_option_out_of_its_limits_is_named_as_it_is_written(
    options: Options, message: str
) -> None:
    limits = {"n": (1, 1000), "batch_size": (1, 4), "snr": (0, 9)}
    for fine in (Options(), Options(1, 4, ()), Options(1000, 1, (0.0, 9.0))):
        within(fine, **limits)
    with pytest.raises(ValueError, match=message):
        within(options, **limits)


CALLS = {
    # what is called: what its message must name
    "load(None)": "name",
    "load(5)": "name",
    "load(M, length='7')": "length",
    "load('oracle:markov', length=7.5)": "length",
    "load('oracle:markov', length=10**30)": "length",
    "load('oracle:markov', length=10**12)": "length",
    "load(M, device=None)": "device",
    "load(M, device=3.5)": "device",
    "load(M, device='abacus')": "device",
    "generate(None)": "model",
    "generate(7)": "model",
    "generate(3, M)": "n",
    "generate(M, None)": "n",
    "generate(M, '3')": "n",
    "generate(M, 3.0)": "n",
    "generate(M, length='7')": "length",
    "generate(load(M), length=7.0)": "length",
    "generate(M, sampler=None)": "sampler",
    "generate(M, sampler=8)": "sampler",
    "generate(M, sampler=Reveal)": "sampler",
    "generate(M, seed=None)": "seed",
    "generate(M, seed='0')": "seed",
    "generate(M, batch_size=None)": "batch_size",
    "generate(M, batch_size='8')": "batch_size",
    "generate(M, hints=5)": "hints",
    "generate(M, hints='AB')": "hints",
    "generate(M, hints=Known(1))": "hints",
    "generate(M, hints=[1.5] * 7)": "hints",
    "generate(M, hints=[1] * 7)": "hints",
    "generate(M, hints=[[Unknown] * 7])": "hints",
    "generate(M, hints=iter([]))": "hints",
    "infill(None)": "text",
    "infill(5)": "text",
    "infill(M, 'AB[3]FG')": "text",
    "infill(load(M), 'AB[3]FG')": "text",
    "infill('AB[3]FG', None)": "model",
    "infill('AB[3]FG', 3)": "model",
    "infill('AB[3]FG', M, None)": "n",
    "infill('AB[3]FG', M, '2')": "n",
    "infill('AB[3]FG', M, sampler=None)": "sampler",
    "infill('AB[3]FG', M, seed='1')": "seed",
    "infill('AB[3]FG', M, batch_size=None)": "batch_size",
    "likelihood(None, 'ABCDEFG')": "model",
    "likelihood(['ABCDEFG'], M)": "model",
    "likelihood('ABCDEFG', M)": "model and texts",
    "likelihood('ABCDEFG', load(M))": "texts",
    "likelihood(M, None)": "texts",
    "likelihood(M, 5)": "texts",
    "likelihood(M, [5])": "texts",
    "likelihood(M, [None])": "texts",
    "likelihood(M, 'ABCDEFG', length='7')": "length",
    "likelihood(load(M), 'ABCDEFG', length=7.5)": "length",
    "likelihood(M, 'ABCDEFG', span=3)": "span",
    "likelihood(M, 'ABCDEFG', span='12')": "span",
    "likelihood(M, 'ABCDEFG', span=(None, 3))": "span",
    "likelihood(M, 'ABCDEFG', span=(1.0, 3.0))": "span",
    "likelihood(M, 'ABCDEFG', span=(1, 2, 3))": "span",
    "likelihood(M, 'ABCDEFG', span=(3, 1))": "span",
    "likelihood(M, 'ABCDEFG', budget=None)": "budget",
    "likelihood(M, 'ABCDEFG', budget='64')": "budget",
    "likelihood(M, 'ABCDEFG', budget=64.0)": "budget",
    "likelihood(M, 'ABCDEFG', cutoff='20')": "cutoff",
    "likelihood(M, 'ABCDEFG', cutoff=float('inf'))": "cutoff",
    "likelihood(M, 'ABCDEFG', seed=None)": "seed",
    "likelihood(M, 'ABCDEFG', seed='0')": "seed",
    "likelihood(M, 'ABCDEFG', only='roar')": "only",
    "likelihood(M, 'ABCDEFG', only=5)": "only",
    "likelihood(M, 'ABCDEFG', only=[])": "only",
    "sampler(None)": "name",
    "sampler(64)": "name",
    "sampler(['mdlm@64'])": "name",
    "Known(None)": "token",
    "Known('a')": "token",
    "Known(1.5)": "token",
    "Known(10**30)": "token",
    "Confident(None, 0.5)": "token",
    "Confident(2, None)": "probability",
    "Confident(2, '0.5')": "probability",
    "Confident(2, torch.ones(2))": "probability",
    "Confident(0.8, 2)": "token",
    "Observed(2, None)": "snr",
    "Observed(1.5, 2)": "token",
    "NBest(None)": "probabilities",
    "NBest([0.5, 0.5])": "probabilities",
    "NBest('ab')": "probabilities",
    "NBest({0.5: 1})": "token",
    "NBest({'a': 0.5})": "token",
    "NBest({1: None})": "probability",
    "NBest({1: '0.5'})": "probability",
    "Allowed(None)": "tokens",
    "Allowed(5)": "tokens",
    "Allowed({1, 2})": "tokens",
    "Evidence.of(None, oracle.cyclic(7))": "hints",
    "Evidence.of([Unknown()] * 7, oracle.cyclic(7))": "hints",
    "Evidence.of(oracle.cyclic(7), [[Unknown()] * 7])": "hints",
    "given(oracle.cyclic(7), None)": "evidence",
    "given(Evidence.of([[Unknown()]], oracle.cyclic(7)), oracle.cyclic(7))": "denoiser",
}

SCRIPT = """
import json, sys
import torch
from dsl import generate, infill, likelihood, load, oracle
from dsl import Allowed, Confident, Evidence, Known, NBest, Observed, Unknown, given
from dsl.samplers.registry import sampler
from dsl.samplers.reveal import Reveal

M, heard = "oracle:cyclic-7", {}
for call in json.load(sys.stdin):
    try:
        heard[call] = ["returned", repr(eval(call))]
    except Exception as error:
        heard[call] = [type(error).__name__, str(error)]
json.dump(heard, sys.stdout)
"""


@pytest.fixture(scope="module")
def heard() -> dict[str, list[str]]:
    """What callers hear who have no run-time type checks, as the tests have: all in one process."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(list(CALLS)),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, list[str]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_who_passes_the_wrong_thing_hears_which_argument_it_is(
    heard: dict[str, list[str]], call: str
) -> None:
    kind, message = heard[call]
    assert kind == "ValueError", message
    assert CALLS[call] in message and len(message) < 1000
