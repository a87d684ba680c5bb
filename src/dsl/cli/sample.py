"""`dsl sample`: draw sequences along any path, and go on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsl.arguments import LENGTHS, within
from dsl.cli.options import DrawingOptions, parse


@dataclass(frozen=True, kw_only=True)
class SampleOptions(DrawingOptions):
    """Draw sequences from a model along a path through SNR space.

    Samplers: mdlm@T, fb@T, dfm@T, remdm-cap@T, remdm-rescale@T, remdm-conf@T, remdm-loop@T,
    first-hitting, first-hitting@T, roar, causal, confident@T, ardm@T, edm@T, localize@T,
    hybrid@Tc+Tm; for networks of other families prism@T, prism-loop@T, vp@T, vp-ode@T, timed@T,
    duo@T, psi@T, tweedie@T, euler@T, candi@T. Any field can follow after a colon, as in
    remdm-loop@128:eta=0.02,top_p=0.9.

    A model of documents chooses the length of its texts, up to --length. Under torchrun the
    sequences are shared by the processes; the texts do not change.
    """

    length: int | None = None
    """Tokens in a sequence; the model's own length if not given."""
    sampler: str = "mdlm@64"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""
    prompt: str = ""
    """Text that every sequence begins with."""
    prompts: Path | None = None
    """A file with a prompt in every line, - for the standard input; -n sequences for each."""
    suffix: str = ""
    """Text that every sequence ends with."""
    match: str | None = None
    """A regular expression that every whole text matches; for paths that draw one token at a time,
    such as roar and causal (extra match)."""
    stride: int | None = None
    """Write texts longer than the model, in windows that move on by so many tokens and see the end
    of what is written."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        within(self, length=LENGTHS, stride=LENGTHS)
        if self.prompt and self.prompts is not None:
            raise ValueError("give --prompt or --prompts, not both")


def main(arguments: Sequence[str]) -> None:
    """Load the model, pin prompt and suffix, draw."""
    options = parse(SampleOptions, "sample", arguments)
    from dsl.cli.drawing import draw, read_lines, read_sampler, what_is_given
    from dsl.drawing import completions
    from dsl.hints import Unknown
    from dsl.jobs import strided
    from dsl.loading import load
    from dsl.provenance import about
    from dsl.serving import allowed, require_served

    sampler = read_sampler(options.sampler, options)
    prompts = [options.prompt] if options.prompts is None else read_lines(options.prompts)
    whole = options.length if options.stride is None else None
    model = load(options.model, length=whole, device=options.device)
    require_served(model, sampler)
    length = model.length if options.length is None else options.length
    sampler = strided(sampler, model, length, options.stride)
    texts = completions(
        model,
        sampler,
        prompts,
        length=length,
        suffix=options.suffix,
        n=options.n,
        seed=options.seed,
        form=None if options.match is None else allowed(model, options.match),
        guidance=options.guidance,
    )
    gap = sum(isinstance(hint, Unknown) for hint in texts.hints[0])
    shown = [f"{prompt}[…]{options.suffix}" for prompt in prompts]
    if options.prompts is None:
        shown = [f"{options.prompt}[{gap}]{options.suffix}"]
    if options.match is not None:
        shown = [f"{text} matching {options.match}" for text in shown]
    description = about(
        model,
        sampler,
        length=length,
        seed=options.seed,
        given=what_is_given(options.prompts, shown, options.guidance),
        command=["dsl", "sample", *arguments],
    )
    draw(texts, description, options)
