"""Measure models and samples: likelihood, calibration, repair, MAUVE, judges, comparisons."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.evaluation.blocks import blocks_of as blocks_of
    from dsl.evaluation.blocks import read as read
    from dsl.evaluation.blocks import read_corpus as read_corpus
    from dsl.evaluation.blocks import read_file as read_file
    from dsl.evaluation.blocks import source_of as source_of
    from dsl.evaluation.calibration import calibrate as calibrate
    from dsl.evaluation.calibration import leave_one_out as leave_one_out
    from dsl.evaluation.calibration import levels as levels
    from dsl.evaluation.comparison import Grid as Grid
    from dsl.evaluation.comparison import compare as compare
    from dsl.evaluation.comparison import markdown as markdown
    from dsl.evaluation.judges import Teacher as Teacher
    from dsl.evaluation.judges import digest as digest
    from dsl.evaluation.judges import fetch as fetch
    from dsl.evaluation.measurement import Benchmark as Benchmark
    from dsl.evaluation.measurement import evaluate as evaluate
    from dsl.evaluation.repair import damage as damage
    from dsl.evaluation.repair import frequent_words as frequent_words
    from dsl.evaluation.repair import repaired as repaired
    from dsl.evaluation.scoring import Report as Report
    from dsl.evaluation.scoring import likelihood as likelihood
    from dsl.evaluation.scoring import score as score
    from dsl.evaluation.settings import PACKAGED as PACKAGED
    from dsl.evaluation.settings import JudgeSettings as JudgeSettings
    from dsl.evaluation.suite import MEASURES as MEASURES
    from dsl.evaluation.suite import MOLECULES as MOLECULES
    from dsl.evaluation.suite import text_hash as text_hash
    from dsl.evaluation.suite import versions as versions
    from dsl.evaluation.validation import REPAIR as REPAIR

__getattr__, __dir__ = exports(__name__, __file__)
