"""Samplers: iterators of states along a path through SNR space, and their names."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.samplers.base import Chain as Chain
    from dsl.samplers.base import Sampler as Sampler
    from dsl.samplers.base import ask as ask
    from dsl.samplers.base import last as last
    from dsl.samplers.base import redrawn as redrawn
    from dsl.samplers.clocked import ClockedAncestral as ClockedAncestral
    from dsl.samplers.clocked import ClockedOde as ClockedOde
    from dsl.samplers.confident import Confident as Confident
    from dsl.samplers.corrector import Corrector as Corrector
    from dsl.samplers.draw import Draw as Draw
    from dsl.samplers.edm import SIGMA_SWITCH as SIGMA_SWITCH
    from dsl.samplers.edm import Edm as Edm
    from dsl.samplers.edm import hybrid as hybrid
    from dsl.samplers.localize import Localize as Localize
    from dsl.samplers.masked import END as END
    from dsl.samplers.masked import Ancestral as Ancestral
    from dsl.samplers.masked import fb as fb
    from dsl.samplers.masked import mdlm as mdlm
    from dsl.samplers.masked import remdm_cap as remdm_cap
    from dsl.samplers.masked import remdm_conf as remdm_conf
    from dsl.samplers.masked import remdm_loop as remdm_loop
    from dsl.samplers.masked import require_steps as require_steps
    from dsl.samplers.refine import Commit as Commit
    from dsl.samplers.refine import Refine as Refine
    from dsl.samplers.registry import SAMPLERS as SAMPLERS
    from dsl.samplers.registry import forms as forms
    from dsl.samplers.registry import register as register
    from dsl.samplers.registry import sampler as sampler
    from dsl.samplers.registry import serving as serving
    from dsl.samplers.reveal import FirstHitting as FirstHitting
    from dsl.samplers.reveal import Reveal as Reveal
    from dsl.samplers.reveal import roar as roar
    from dsl.samplers.reveal import until_done as until_done
    from dsl.samplers.specification import from_data as from_data
    from dsl.samplers.specification import read_file as read_file
    from dsl.samplers.specification import to_data as to_data
    from dsl.samplers.state import State as State
    from dsl.samplers.strided import Strided as Strided

__getattr__, __dir__ = exports(__name__, __file__)
