"""Load models by name, and convert checkpoints of other systems."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.checkpoints.convert import convert_alphabet as convert_alphabet
    from dsl.checkpoints.convert import convert_masked as convert_masked
    from dsl.checkpoints.convert import convert_mdlm as convert_mdlm
    from dsl.checkpoints.convert import halve as halve
    from dsl.checkpoints.convert import require_new as require_new
    from dsl.checkpoints.llama import Source as Source
    from dsl.checkpoints.llama import Vocabulary as Vocabulary
    from dsl.checkpoints.llama import convert_llama as convert_llama
    from dsl.checkpoints.llama import read_llama2c as read_llama2c
    from dsl.checkpoints.loading import TEACHERS as TEACHERS
    from dsl.checkpoints.loading import Model as Model
    from dsl.checkpoints.loading import Teacher as Teacher
    from dsl.checkpoints.loading import load as load
    from dsl.checkpoints.loading import loaded as loaded
    from dsl.checkpoints.loading import require_teacher as require_teacher

__getattr__, __dir__ = exports(__name__, __file__)
