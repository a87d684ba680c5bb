"""A sampler as plain data, for YAML files and for the record of what was run."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import cattrs
from cattrs.strategies import configure_tagged_union

from dsl import plain
from dsl.sampling.ancestral import Ancestral
from dsl.sampling.clocked import ClockedAncestral
from dsl.sampling.corrector import Corrector
from dsl.sampling.edm import Edm
from dsl.sampling.localize import Localize
from dsl.sampling.refine import Commit, Refine
from dsl.sampling.remask import Remask
from dsl.sampling.reveal import FirstHitting, Reveal
from dsl.sampling.sampler import Chain, Sampler
from dsl.sampling.schedule import Alpha

Single = (
    Ancestral
    | Corrector
    | Reveal
    | FirstHitting
    | Localize
    | Edm
    | Commit
    | Refine
    | ClockedAncestral
)


def to_data(sampler: Sampler) -> Any:
    """Write a sampler as dictionaries and lists; `kind` names the class of each."""
    if isinstance(sampler, Chain):
        return {"kind": "Chain", "samplers": [to_data(stage) for stage in sampler.samplers]}
    if getattr(sampler, "path", None) is not None:
        raise ValueError("a sampler along a path of its own cannot be written as plain data")
    return _converter().unstructure(sampler, unstructure_as=Single)


def from_data(data: Any) -> Sampler:
    """Build the sampler that `to_data` wrote, refusing unknown kinds and fields."""
    if not isinstance(data, dict) or "kind" not in data:
        raise ValueError(f"a sampler is a mapping with a 'kind', got {data!r}")
    kinds = ["Chain", *(kind.__name__ for kind in get_args(Single))]
    if data["kind"] not in kinds:
        raise ValueError(f"unknown kind of sampler {data['kind']!r}; expected {', '.join(kinds)}")
    if data["kind"] == "Chain":
        if set(data) != {"kind", "samplers"} or not data["samplers"]:
            raise ValueError(f"a Chain has a list of 'samplers' and nothing else, got {list(data)}")
        return Chain(tuple(from_data(stage) for stage in data["samplers"]))
    try:
        built: Sampler = _converter().structure(data, Single)  # type: ignore[arg-type]
    except cattrs.BaseValidationError as error:
        reason = plain.explain(error)
        raise ValueError(f"cannot build the sampler {data['kind']!r}: {reason}") from error
    return built


@cache
def _converter() -> cattrs.Converter:
    converter = plain.converter()
    for union in (Alpha, Remask, Single):
        configure_tagged_union(union, converter, tag_name="kind")
    # A path is a function of t, not data: it is None here or refused above.
    converter.register_structure_hook_func(
        lambda kind: "SNRPath" in str(kind), lambda value, _: value
    )
    return converter
