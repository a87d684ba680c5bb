"""What a model may be used for: which samplers serve it, and whether its texts can have a form."""

from __future__ import annotations

from dsl import presets
from dsl.arguments import text as require_text
from dsl.automaton import Automaton
from dsl.denoiser import Question
from dsl.loading import Model
from dsl.sampling.sampler import Sampler


def require_served(model: Model, sampler: Sampler) -> None:
    """Refuse a sampler that asks what the model's family cannot answer, naming those that serve."""
    missing = sampler.needs - model.answers
    if missing:
        serving = ", ".join(presets.serving(model.answers))
        raise ValueError(
            f"{model.name} is a model of family {model.family.name} and cannot be asked "
            f"{' or '.join(map(_in_words, sorted(missing)))}, which this sampler "
            f"does; it is served by {serving}"
        )


def require_passed_on(sampler: Sampler, answered: frozenset[Question], why: str) -> None:
    """Refuse a sampler that asks what is not answered here, whatever the network can answer."""
    missing = sampler.needs - answered
    if missing:
        asks = " and ".join(_in_words(question) for question in sorted(missing))
        raise ValueError(f"{why}; this sampler asks {asks}")


def require_endpoints(model: Model, use: str) -> None:
    """Refuse a model that cannot be asked about masked tokens anywhere."""
    if "endpoints" not in model.answers:
        raise ValueError(
            f"{model.name} is of family {model.family.name}: only a model that can be asked about "
            f"masked tokens anywhere {use}"
        )


def _in_words(question: str) -> str:
    return ASKED.get(question, f"for {question!r}")


ASKED = {
    "prefix": "what follows a prefix",
    "endpoints": "about masked tokens anywhere",
    "states": "about states between mask and token",
    "clock": "at a stated SNR",
    "time": "at a stated time",
    "replaced": "about tokens that were replaced by others",
    "score": "for score ratios",
    "quality": "how good a token is",
    "mixed": "about masked tokens seen through noise",
}
"""What a sampler asks, in words."""


def allowed(model: Model, pattern: str) -> Automaton:
    """Compile a regular expression over the tokens of a model; a document's end may follow it."""
    require_text("match", pattern)
    require_endpoints(model, "writes texts of an allowed form")
    end = model.end if model.documents else None
    return Automaton.of(pattern, model.pieces, end)
