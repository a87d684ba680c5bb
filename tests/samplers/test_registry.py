"""The small language of sampler names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from dsl.core.denoiser import Continuous, Denoiser, Network, Rated
from dsl.core.streams import Randomness
from dsl.families.registry import FAMILIES
from dsl.samplers import registry as names
from dsl.samplers import registry as presets
from dsl.samplers.base import Chain, Sampler
from dsl.samplers.draw import Draw
from dsl.samplers.edm import Edm
from dsl.samplers.masked import Ancestral, Cap, Loop
from dsl.samplers.refine import Refine
from dsl.samplers.registry import SAMPLERS, register, sampler, serving
from dsl.samplers.reveal import FirstHitting, Reveal
from dsl.samplers.state import State


def test_names_build_what_they_say() -> None:
    assert sampler("remdm-loop@128:eta=0.02,top_p=0.9,alpha_on=0.8") == Ancestral(
        128, Loop(alpha_on=0.8), Cap(0.02), Draw(top_p=0.9)
    )
    assert sampler("first-hitting") == sampler("roar") == Reveal("random")
    assert sampler("first-hitting@8") == FirstHitting(8)
    hybrid = sampler("hybrid@16+32:temperature=1.0")
    assert isinstance(hybrid, Chain)
    walk, _, refine = hybrid.samplers
    assert isinstance(walk, Edm) and (walk.num_steps, walk.stop, walk.churn) == (16, 0.49, 1.41)
    assert isinstance(refine, Refine) and refine.draw == Draw()


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_forms_that_are_listed_can_be_built(name: str) -> None:
    (form,) = [form for form in presets.forms() if form.partition("@")[0] == name]
    wanted = inspect.signature(SAMPLERS[name]).parameters
    assert ("@" in form) == (
        "num_steps" in wanted and wanted["num_steps"].default is inspect._empty
    )
    assert isinstance(sampler(names.example(name)), Sampler)


@pytest.mark.parametrize(
    "name, message",
    [
        ("mdml@8", "unknown sampler 'mdml'; expected one of ardm@T"),
        ("mdlm", "'mdlm' needs a number of steps"),
        ("mdlm@0", "at least 1 step and at most 1,000,000, got '0'"),
        ("mdlm@1000001", "at most 1,000,000, got '1000001'"),
        ("mdlm@" + "9" * 5000, "cannot read the steps"),
        ("mdlm@x", "cannot read the steps 'x'"),
        ("mdlm@²", "cannot read the steps '²'"),
        ("mdlm@-4", "cannot read the steps '-4'"),
        ("mdlm@many", "expected e.g. mdlm@128"),
        ("hybrid@16", r"expected e.g. hybrid@16\+32"),
        ("hybrid@16+32+48", r"expected e.g. hybrid@16\+32"),
        ("roar@12", "takes one step per token"),
        ("mdlm@8:eta=0.1", "cannot use 'eta=0.1' with sampler 'mdlm'; its fields are refresh_un"),
        ("mdlm@8:steps=4", "cannot use 'steps=4'"),
        ("mdlm@8:draw=4", "cannot use 'draw=4'"),
        ("mdlm@8:return=4", "cannot use 'return=4'"),
        ("mdlm@8:top_p", "cannot use 'top_p'"),
        ("mdlm@8:top_p=high", "top_p must be a number, got 'high'"),
        ("mdlm@8:top_p=0", "top_p must lie in"),
        ("mdlm@8:top_k=1.5", "top_k must be a number, got '1.5'"),
        ("mdlm@8:temperature=nan", "temperature must be >= 0"),
        ("mdlm@8:refresh_unmasked=1", "must be true or false"),
        ("edm@8:start=middle", "start must be one of zero, mean; got 'middle'"),
    ],
)
def test_names_that_cannot_be_read_are_explained(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        sampler(name)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


class TestServing:
    """Which samplers a family can be walked by follows from what its networks answer."""

    @pytest.mark.parametrize("family", FAMILIES)
    def test_they_ask_no_more_than_is_answered_and_the_others_do(self, family: str) -> None:
        protocol = FAMILIES[family].protocol
        served = serving(protocol)
        assert served, "every family has a sampler"
        for name, form in zip(SAMPLERS, presets.forms(), strict=True):
            assert (form in served) == (sampler(names.example(name)).asks in protocol.__mro__)

    def test_each_family_has_its_own(self) -> None:
        of = {name: set(serving(family.protocol)) for name, family in FAMILIES.items()}
        assert of["ar"] == {"causal"}
        assert of["vp"] == of["plaid"] == of["cdcd"] == {"vp@T", "vp-ode@T"}
        assert of["mdlm"] == of["dsl"] - {"localize@T", "edm@T", "hybrid@Tc+Tm"}
        foreign = {form for name, form in zip(SAMPLERS, presets.forms(), strict=True)
                   if sampler(names.example(name)).asks not in Continuous.__mro__}  # fmt: skip
        assert of["dsl"] == set(presets.forms()) - foreign
        assert of["prism"] == of["mdlm"] | {"prism@T", "prism-loop@T"}
        assert of["sedd"] == {"tweedie@T", "euler@T"}

    def test_who_answers_nothing_is_served_by_nobody(self) -> None:
        assert serving(Network) == []


@dataclass(frozen=True)
class Patient:
    """A sampler of one's own, which does nothing in so many steps."""

    num_steps: int
    eagerness: float = 0.5
    draw: Draw = Draw()
    asks: ClassVar[type] = Rated

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        yield start


def patient(num_steps: int, *, eagerness: float = 0.5, draw: Draw = Draw(top_p=0.9)) -> Sampler:
    return Patient(num_steps, eagerness, draw)


class TestRegister:
    @pytest.fixture(autouse=True)
    def _apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is registered here is forgotten afterwards."""
        monkeypatch.setattr(SAMPLERS, "_loaded", dict(SAMPLERS._loaded))

    def test_a_registered_name_is_a_name_like_any_other(self) -> None:
        register("patient", patient)
        assert sampler("patient@3") == Patient(3, 0.5, Draw(top_p=0.9))
        found = sampler("patient@3:eagerness=0.25,temperature=0.5")
        assert found == Patient(3, 0.25, Draw(temperature=0.5, top_p=0.9))
        assert "patient@T" in presets.forms()
        with pytest.raises(ValueError, match="its fields are eagerness, temperature"):
            sampler("patient@3:haste=1")

    def test_it_serves_whom_it_asks_nothing_too_much(self) -> None:
        register("patient", patient)
        assert "patient@T" in serving(Rated)
        assert "patient@T" not in serving(Continuous)

    def test_the_same_again_is_no_harm_and_another_is_refused(self) -> None:
        register("patient", patient)
        register("patient", patient)
        with pytest.raises(ValueError, match="there is a sampler 'patient' already"):
            register("patient", lambda *, draw=Draw(): Reveal(draw=draw))
        with pytest.raises(ValueError, match="there is a sampler 'mdlm' already"):
            register("mdlm", patient)

    def test_a_factory_must_take_a_draw(self) -> None:
        for factory in (
            lambda steps: Patient(steps),
            lambda steps, draw: Patient(steps, 1.0, draw),
        ):
            with pytest.raises(ValueError, match="must take draw: Draw = Draw"):
                register("undrawn", factory)
        assert "undrawn" not in presets.forms()

    @pytest.mark.parametrize("name", ["", "a b", "a@b", "a:b", "a=b", "a,b"])
    def test_a_name_that_could_not_be_asked_for_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="name must be a word"):
            register(name, patient)
