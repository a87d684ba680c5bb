"""Draw text: one request, one run.

Most programs need only `generate` and `infill`. Below them, a `Request` describes what to draw and
`run` draws it into a `Sink`.
"""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.generation.engine import Sink as Sink
    from dsl.generation.engine import generate as generate
    from dsl.generation.engine import infill as infill
    from dsl.generation.engine import run as run
    from dsl.generation.engine import walk as walk
    from dsl.generation.options import DrawOptions as DrawOptions
    from dsl.generation.options import Ending as Ending
    from dsl.generation.options import InfillOptions as InfillOptions
    from dsl.generation.options import SampleOptions as SampleOptions
    from dsl.generation.posteriors import Posterior as Posterior
    from dsl.generation.posteriors import posterior as posterior
    from dsl.generation.prompts import ended as ended
    from dsl.generation.prompts import parse_gaps as parse_gaps
    from dsl.generation.prompts import prompted as prompted
    from dsl.generation.prompts import read_hints as read_hints
    from dsl.generation.request import Batch as Batch
    from dsl.generation.request import Request as Request
    from dsl.generation.request import completion as completion
    from dsl.generation.request import infilling as infilling
    from dsl.generation.request import model_length as model_length
    from dsl.generation.request import named_sampler as named_sampler
    from dsl.generation.samples import Sample as Sample
    from dsl.generation.samples import Store as Store
    from dsl.generation.trace import Trace as Trace

__getattr__, __dir__ = exports(__name__, __file__)
