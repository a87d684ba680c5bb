"""Molecules as SMILES: corpora, a tokenizer, and the benchmark MOSES."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.apps.molecules.chemistry import Filters as Filters
    from dsl.apps.molecules.chemistry import features as features
    from dsl.apps.molecules.corpus import benzenes as benzenes
    from dsl.apps.molecules.distances import Molecules as Molecules
    from dsl.apps.molecules.distances import Reference as Reference
    from dsl.apps.molecules.measure import Benchmark as Benchmark

__getattr__, __dir__ = exports(__name__, __file__)
