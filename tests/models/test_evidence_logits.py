"""The state's own scores beside what the context says: Bayes' rule in the head."""

from __future__ import annotations

from dataclasses import replace

import torch

from dsl.core.channel import observe
from dsl.core.denoiser import Endpoints
from dsl.core.snr import Mixed
from dsl.core.streams import Streams
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.models.dsl import DSLModel
from tests.conftest import assert_near, perturbed

B, L = 3, 6


def states(model: DSLModel) -> list[torch.Tensor | Endpoints]:
    tokens = torch.randint(model.vocab_size, (B, L))
    noisy = observe(model.codebook[tokens].detach(), 10 * torch.rand(B, L))
    evidence = torch.randn(B, L, model.config.codebook_dim)
    ends = torch.randint(-1, model.vocab_size, (B, L))
    return [noisy, Endpoints(ends), Endpoints(ends, evidence)]


def with_evidence(model: DSLModel) -> DSLModel:
    made = DSLModel(replace(model.config, evidence_logits=True))
    made.load_state_dict(model.state_dict())
    return made.eval()


@torch.no_grad()
def test_the_logits_are_those_of_the_context_and_the_scores(model: DSLModel) -> None:
    made = with_evidence(model)
    at = torch.rand(B, L) < 0.5
    at[1] = False
    for z in states(model):
        field = z.z(model.codebook, model.snr_max) if isinstance(z, Endpoints) else z
        assert_near(made(z), model(z) + field @ model.codebook.T)
        assert_near(made(z, at=at), made(z)[at])


@torch.no_grad()
def test_an_untrained_network_is_the_exact_denoiser_of_uniform_tokens(model: DSLModel) -> None:
    made = DSLModel(replace(model.config, backbone="dit", evidence_logits=True)).eval()
    for z in states(made):
        field = z.z(made.codebook, made.snr_max) if isinstance(z, Endpoints) else z
        assert_near(made(z).softmax(-1), (field @ made.codebook.T).softmax(-1))


def test_the_objective_counts_what_the_model_says(model: DSLModel) -> None:
    made = with_evidence(model)
    tokens = torch.randint(made.vocab_size, (B, L))
    objective = MixedSNRObjective(made, MixedSNROptions(snr=Mixed(weight=0.5)))
    loss = objective(tokens, Streams.derive(0, range(B)), range(B), B)
    streams = Streams.derive(0, range(B))
    snr = objective.config.snr.sample((B, L), generator=streams)
    z = observe(made.codebook[tokens], snr.to(made.codebook.dtype), generator=streams)
    expected = torch.nn.functional.cross_entropy(made(z).flatten(0, 1), tokens.flatten())
    assert_near(loss.mean, expected)


def test_the_choice_is_kept_with_the_weights(model: DSLModel, tmp_path: object) -> None:
    made = perturbed(replace(model.config, evidence_logits=True))
    made.save_pretrained(str(tmp_path))
    again = DSLModel.from_pretrained(str(tmp_path))
    z = states(made)[0]
    with torch.no_grad():
        assert_near(again(z), made(z))
