"""Train a family by a recipe: trainer, optimizer, checkpoints, precision, runs."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.training.recipe import Recipe as Recipe
    from dsl.training.run import Watch as Watch
    from dsl.training.run import train as train
    from dsl.training.utilisation import Utilisation as Utilisation

__getattr__, __dir__ = exports(__name__, __file__)
