"""Sampler names: `preset@T:field=value`, and what they build."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from dsl.samplers import registry as presets
from dsl.samplers.base import Sampler
from tests.fuzz.cases import ODD, fuzz, texts
from tests.fuzz.walking import walk

pytestmark = pytest.mark.slow

VALID = [
    "mdlm@8", "fb@4:official=true", "dfm@4", "remdm-cap@8:eta=0.02,top_p=0.9", "remdm-rescale@4",
    "remdm-conf@8:temperature=0.5,top_k=3,crossing=keep", "roar:shared=true", "causal",
    "remdm-loop@8:eta_source=table,t_on=0.6,t_off=0.1,alpha_on=0.8", "first-hitting@4",
    "localize@4:snr_max=20,power=2,noise=0.5", "first-hitting",
    "edm@4:sigma_max=10,sigma_min=0.2,rho=5,churn=1.4,churn_means=total,heun=false,start=mean",
    "hybrid@2+3:sigma_switch=0.5,r_min=0.1,r_max=0.9,r_end=0.05",
]  # fmt: skip
NUMBERS = ["-1", "0", "1", "1e-310", "1e-30", "1e30", "1e300", "1e400", "nan", "inf", "-inf", "0.5",
           "9" * 30, "", " 1 ", "1_0", "٣", "0x1"]  # fmt: skip
FIELDS = ["temperature", "top_k", "top_p", "crossing", "eta", "rho", "churn", "sigma_max",
          "sigma_min", "sigma_switch", "snr_max", "power", "noise", "t_on", "t_off", "alpha_on",
          "r_min", "r_max", "r_end", "heun", "refresh_unmasked", "churn_means"]  # fmt: skip

chosen = st.builds(
    lambda name, fields: ":".join([name.partition(":")[0], ",".join(fields)]),
    st.sampled_from(VALID),
    st.lists(
        st.builds("{}={}".format, st.sampled_from(FIELDS), st.sampled_from([*NUMBERS, *ODD])),
        max_size=3,
    ),
)
FOUND = [
    "mdlm@8:crossing=" + "1" * 100_000,
    "edm@4:rho=0",
    "edm@4:rho=1e-310",
    "edm@4:churn=1e300,churn_means=factor",
    "mdlm@8:temperature=inf",
    "mdlm@8:temperature=1e-310",
    "localize@4:snr_max=1e300",
    "mdlm@" + "0+" * 100_000,
]


def build(name: str) -> None:
    sampler = presets.sampler(name)
    assert isinstance(sampler, Sampler)
    walk(sampler)


def test_a_name_is_a_sampler_or_a_mistake() -> None:
    fuzz("names", texts(VALID) | chosen, build, FOUND)
