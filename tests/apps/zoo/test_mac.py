"""MAC: the states and costs of its queries, by enumeration of all queries."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.mac import MacObjective, MacOptions, Queries, canonical
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK, Tokens
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.families.registry import FAMILIES
from dsl.likelihoods.estimate import Effort
from dsl.likelihoods.roar import cross_entropy
from tests.families.conftest import TOKENS, awake

MAC = FAMILIES["mac"]
L, TIMES = 4, 40
QUERIES: list[Queries] = ["conditional", "marginal"]


class Spy(MdlmModel):
    """An oracle instead of the network that records its calls."""

    def __init__(self, truth: oracle.Oracle) -> None:
        v = len(truth.codebook)
        super().__init__(
            MdlmShape(v, model_length=L, hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=2)
        )
        self.truth = truth
        self.asked: list[tuple[Tensor, Tensor]] = []

    def forward(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert isinstance(z, Endpoints) and at is not None
        self.asked.append((z.tokens, at))
        return self.truth(z, at=at)


def sets() -> Tensor:
    """Every set of four positions."""
    return torch.tensor(list(product([False, True], repeat=L)))


def edges(queries: Queries) -> dict[tuple[int, int], float]:
    """The frequency of each (A, i) in queries of uniform size, by recursion."""
    often: dict[tuple[int, int], float] = {}
    sizes = range(L) if queries == "conditional" else range(1, L + 1)
    for chosen in sets():
        size = int(chosen.sum())
        if size not in sizes:
            continue
        share = 1 / (len(sizes) * int((sets().sum(dim=1) == size).sum()))
        known = [bool(c) and queries == "conditional" for c in chosen]
        for i in range(L):  # from left to right
            if bool(chosen[i]) == (queries == "marginal"):
                code = (sum(2**j for j in range(L) if known[j]), i)
                often[code] = often.get(code, 0.0) + share
                known[i] = True
    return often


def query_nats(truth: oracle.Enumerated, text: Tokens, queries: Queries) -> tuple[float, float]:
    """The mean -log P of a query from the joint distribution, and its mean length."""
    p = truth.log_weights.softmax(0)
    nats, lengths = [], []
    sizes = range(L) if queries == "conditional" else range(1, L + 1)
    for size in sizes:
        same = sets()[sets().sum(dim=1) == size]
        each = []
        for chosen in same:
            agree = (truth.sequences[:, chosen] == text[0, chosen]).all(dim=1)
            marginal = -(p * agree).sum().log()
            joint = -truth.log_prob(text)[0]
            each.append(float(joint - marginal if queries == "conditional" else marginal))
        nats.append(sum(each) / len(each))
        lengths.append(L - size if queries == "conditional" else size)
    return sum(nats) / L, sum(lengths) / L


@torch.no_grad()
def run(model: MdlmModel, options: MacOptions, text: Tokens) -> Tensor:
    objective, places = MacObjective(model, options), range(32)
    return torch.stack([
        objective(text.expand(32, -1), Streams.derive(seed, places), places, 32).mean
        for seed in range(TIMES)
    ])  # fmt: skip


@pytest.mark.parametrize("queries", QUERIES)
class TestQueries:
    def test_every_conditional_is_trained_as_often_as_queries_need_it(
        self, queries: Queries
    ) -> None:
        """Only 2^l - 1 of the l 2^(l-1) conditionals are trained."""
        wanted = edges(queries)
        assert len(wanted) == 2**L - 1
        spy = Spy(oracle.markov(3, L))
        run(spy, MacOptions(queries, "edge"), torch.tensor([[0, 1, 2, 0]]))
        shown = torch.cat([tokens != MASK for tokens, _ in spy.asked])
        at = torch.cat([at for _, at in spy.asked])
        assert (at.sum(dim=1) == 1).all()
        n, total = len(shown), sum(wanted.values())
        codes = (shown.long() @ (2 ** torch.arange(L))) * L + at.long().argmax(dim=1)
        counts = codes.bincount(minlength=L * 2**L)
        for code in range(L * 2**L):
            p = wanted.get((code // L, code % L), 0.0) / total
            assert abs(int(counts[code]) - n * p) <= 5 * (n * p * (1 - p)) ** 0.5

    def test_for_an_exact_network_the_loss_is_the_cost_of_a_query(self, queries: Queries) -> None:
        """The mean of -log P per token over all queries, in canonical order."""
        truth = oracle.markov(3, L).enumerated()
        text = truth.sample(1, generator=stream(2))
        drawn = run(Spy(truth), MacOptions(queries, "edge"), text)
        nats, length = query_nats(truth, text, queries)
        assert abs(float(drawn.mean()) - nats / length) < 4 * float(drawn.std()) / TIMES**0.5

    def test_for_any_network_it_is_the_mean_over_its_conditionals(self, queries: Queries) -> None:
        network = awake(MAC)
        text = TOKENS[:1, :L]
        drawn = run(network, MacOptions(queries, "edge"), text)
        often = edges(queries)
        wanted = 0.0
        for (known, i), share in often.items():
            shown = text.clone()
            shown[0, [j for j in range(L) if not known >> j & 1]] = MASK
            with torch.no_grad():
                row = network(Endpoints(shown))[:, i]
            wanted += share * float(cross_entropy(row, text[:, i]))
        error = float(drawn.std()) / TIMES**0.5
        assert abs(float(drawn.mean()) - wanted / sum(often.values())) < 4 * error

    def test_the_default_loss_is_the_mean_over_hidden_tokens(self, queries: Queries) -> None:
        """At the same states; the part named edge is still the cost of the queries."""
        truth = oracle.markov(3, L)
        text, places = torch.tensor([[0, 1, 2, 0]]).expand(16, -1), range(16)
        spies = [Spy(truth), Spy(truth)]
        every, edge = (
            MacObjective(spy, MacOptions(queries, targets))(
                text, Streams.derive(0, places), places, 16
            )
            for spy, targets in zip(spies, ("masked", "edge"), strict=True)
        )
        (tokens, at), (same, one) = spies[0].asked[0], spies[1].asked[0]
        assert torch.equal(tokens, same) and torch.equal(at, tokens == MASK)
        assert (at & one == one).all()
        assert float(every.parts["edge"][0]) == pytest.approx(float(edge.sum.detach()))
        own = truth(Endpoints(tokens)).log_softmax(-1).gather(-1, text.unsqueeze(-1)).squeeze(-1)
        mean = -(own * at).sum(dim=1) / at.sum(dim=1)
        assert float(every.sum.detach()) == pytest.approx(float(mean.sum()), rel=1e-5)


def test_the_canonical_order_takes_the_chosen_first() -> None:
    chosen = torch.tensor([[False, True, False, True], [False] * 4, [True] * 4])
    assert canonical(chosen).tolist() == [[2, 0, 3, 1], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_its_likelihood_is_that_of_the_canonical_order() -> None:
    """ROAR averages all orders; for an exact network both are the truth."""
    truth = oracle.markov(3, L)
    text = truth.sample(3, generator=stream(2))
    canonical_nats, roar = MAC.estimators(awake(MAC), Effort(64))
    assert [canonical_nats.label, roar.label] == ["causal", "roar"]
    exact = -truth.log_prob(text)
    assert float((canonical_nats(truth, text).nats - exact).abs().max()) < 1e-6
    found = roar(truth, text, generator=stream(0))
    assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr
