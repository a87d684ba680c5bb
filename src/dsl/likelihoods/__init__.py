"""Likelihood estimators: ROAR, the path integral, the chain rule, the VDM bound, the audit."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.core.denoiser import require_logits as require_logits
    from dsl.likelihoods.chain_rule import Causal as Causal
    from dsl.likelihoods.chain_rule import ChainRule as ChainRule
    from dsl.likelihoods.estimate import LEAST_BUDGET as LEAST_BUDGET
    from dsl.likelihoods.estimate import Effort as Effort
    from dsl.likelihoods.estimate import Estimate as Estimate
    from dsl.likelihoods.estimate import Estimator as Estimator
    from dsl.likelihoods.estimate import Kind as Kind
    from dsl.likelihoods.estimate import Mean as Mean
    from dsl.likelihoods.estimate import deviation as deviation
    from dsl.likelihoods.estimate import require_draws as require_draws
    from dsl.likelihoods.path_audit import audit as audit
    from dsl.likelihoods.path_integral import PathIntegral as PathIntegral
    from dsl.likelihoods.path_integral import observations as observations
    from dsl.likelihoods.roar import Roar as Roar
    from dsl.likelihoods.roar import cross_entropy as cross_entropy
    from dsl.likelihoods.vdm import VdmBound as VdmBound
    from dsl.likelihoods.vdm import prior as prior

__getattr__, __dir__ = exports(__name__, __file__)
