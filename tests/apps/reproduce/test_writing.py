"""The animation: every state is a frame, and the last frame is the text that was drawn."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import dsl
from dsl.apps.reproduce.writing import animation, lane
from dsl.cli.main import main

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("sampler", ["mdlm@4", "localize@4", "roar"])
def test_the_last_frame_is_the_text_that_is_drawn(sampler: str) -> None:
    model = dsl.load("text8-tiny")
    drawn = dsl.generate(model, prompt="the ", length=12, sampler=sampler, seed=3)[0]
    found = lane(model, sampler, prompt="the ", length=12, seed=3)
    assert "".join(cell.text for cell in found.frames[-1]) == drawn.text
    assert all(cell.level == cell.probability == 1 for cell in found.frames[-1])
    assert [cell.text for cell in found.frames[0]][:4] == list("the ")
    assert all(cell.level == 0 for cell in found.frames[0][4:])
    soft = {cell.level for frame in found.frames for cell in frame} - {0.0, 1.0}
    assert bool(soft) == sampler.startswith("localize")


def test_the_picture_shows_the_finished_text_without_animation() -> None:
    model = dsl.load("text8-tiny")
    found = lane(model, "mdlm@4", prompt="the ", length=12, seed=3)
    root = ElementTree.fromstring(animation([found]))
    still = [
        text.text or ""
        for text in root.iter(f"{SVG}text")
        if text.get("opacity", "0") != "0" and text.get("font-family") == "monospace"
    ]
    assert "".join(still) == "".join(c.text for c in found.frames[-1]).replace(" ", "")
    for change in root.iter(f"{SVG}animate"):
        times = [float(time) for time in change.get("keyTimes", "").split(";")]
        assert times[0] == 0 and times == sorted(times) and times[-1] < 1
        assert len(times) == len(change.get("values", "").split(";"))


@pytest.mark.parametrize(
    "job, message",
    [
        (["text8-tiny", "--out", "x.png"], "must be written as .svg, got"),
        (["text8-tiny", "text8-tiny-20m", "--out", "x.svg"], "needs exactly one model, got 2"),
        (["text8-tiny-mdlm", "--out", "x.svg"], "the animation needs a DSL model"),
        (["text8-tiny", "--length", "0", "--out", "x.svg"], "--length must lie in"),
    ],
)
def test_mistakes_are_explained(
    job: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "figure", "writing", *job, "--prompt", "the "]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
