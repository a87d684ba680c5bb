"""Networks: DiT, encoder and llama blocks, the converter, DSL, MDLM and AR on top of them."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.models import folder as folder
    from dsl.models.ar import ArModel as ArModel
    from dsl.models.ar import ArShape as ArShape
    from dsl.models.codebook import initial_table as initial_table
    from dsl.models.config import ModelConfig as ModelConfig
    from dsl.models.config import NetworkShape as NetworkShape
    from dsl.models.config import ShapedNetwork as ShapedNetwork
    from dsl.models.config import codebook_for as codebook_for
    from dsl.models.config import require_codebook as require_codebook
    from dsl.models.dit import DiT as DiT
    from dsl.models.dit import LayerNorm as LayerNorm
    from dsl.models.dit import zeroed as zeroed
    from dsl.models.dsl import DSLModel as DSLModel
    from dsl.models.mdlm import MDLM as MDLM

__getattr__, __dir__ = exports(__name__, __file__)
