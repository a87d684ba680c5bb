"""Correct doubtful text, with a probability for every change."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.apps.correct.corrector import Policy as Policy
    from dsl.apps.correct.corrector import correct as correct
    from dsl.apps.correct.errors import ErrorModel as ErrorModel
    from dsl.apps.correct.formats import Format as Format
    from dsl.apps.correct.lengths import LengthErrors as LengthErrors
    from dsl.apps.correct.reading import Correction as Correction
    from dsl.apps.correct.reading import Reading as Reading
    from dsl.apps.correct.reading import Symbol as Symbol
    from dsl.apps.correct.render import section as section
    from dsl.apps.correct.trust import Trust as Trust

__getattr__, __dir__ = exports(__name__, __file__)
