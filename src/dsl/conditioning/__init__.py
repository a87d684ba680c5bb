"""Conditioning on hints and constraints: evidence, guidance, steering, patterns, padding."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.conditioning.automaton import Automaton as Automaton
    from dsl.conditioning.automaton import matching as matching
    from dsl.conditioning.evidence import Evidence as Evidence
    from dsl.conditioning.evidence import given as given
    from dsl.conditioning.evidence import log_likelihood as log_likelihood
    from dsl.conditioning.guidance import guided as guided
    from dsl.conditioning.hints import Allowed as Allowed
    from dsl.conditioning.hints import Confident as Confident
    from dsl.conditioning.hints import Hint as Hint
    from dsl.conditioning.hints import Known as Known
    from dsl.conditioning.hints import NBest as NBest
    from dsl.conditioning.hints import Observed as Observed
    from dsl.conditioning.hints import Unknown as Unknown
    from dsl.conditioning.padding import padded as padded
    from dsl.conditioning.steering import Steered as Steered
    from dsl.conditioning.wrapper import ContinuousWrapper as ContinuousWrapper
    from dsl.conditioning.wrapper import Wrapper as Wrapper
    from dsl.conditioning.wrapper import innermost as innermost

__getattr__, __dir__ = exports(__name__, __file__)
