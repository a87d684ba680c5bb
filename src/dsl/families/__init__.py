"""Families of models: network, objective, estimators and calibration levels of each kind."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.families.ar import ArFamily as ArFamily
    from dsl.families.base import Family as Family
    from dsl.families.dsl import DSL as DSL
    from dsl.families.dsl import DslFamily as DslFamily
    from dsl.families.levels import AtSNR as AtSNR
    from dsl.families.levels import Level as Level
    from dsl.families.levels import Masked as Masked
    from dsl.families.mdlm import LEAST_TIME as LEAST_TIME
    from dsl.families.mdlm import MaskedFamily as MaskedFamily
    from dsl.families.mdlm import MdlmFamily as MdlmFamily
    from dsl.families.mdlm import MdlmModel as MdlmModel
    from dsl.families.mdlm import MdlmObjective as MdlmObjective
    from dsl.families.mdlm import MdlmOptions as MdlmOptions
    from dsl.families.mdlm import MdlmShape as MdlmShape
    from dsl.families.mdlm import Moments as Moments
    from dsl.families.mdlm import masked as masked
    from dsl.families.mdlm import moments as moments
    from dsl.families.objective import Loss as Loss
    from dsl.families.objective import Objective as Objective
    from dsl.families.objective import counted as counted
    from dsl.families.objective import stratified as stratified
    from dsl.families.objective import surprise as surprise
    from dsl.families.objective import tallied as tallied
    from dsl.families.registry import FAMILIES as FAMILIES
    from dsl.families.registry import register as register
    from dsl.families.vp import ClockFamily as ClockFamily
    from dsl.families.vp import VdmObjective as VdmObjective
    from dsl.families.vp import VpFamily as VpFamily
    from dsl.families.vp import VpModel as VpModel
    from dsl.families.vp import VpShape as VpShape
    from dsl.families.warp import Warp as Warp
    from dsl.families.warp import WarpOptions as WarpOptions
    from dsl.families.warp import falling as falling
    from dsl.families.warp import located as located

__getattr__, __dir__ = exports(__name__, __file__)
