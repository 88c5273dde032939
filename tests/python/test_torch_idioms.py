"""What models do with torch's own libraries runs from a graph: distributions, parametrizations, masks, codebooks."""

from __future__ import annotations

import collections
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from module_support import Twins
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Vae(nn.Module):
    """Validates the parameters of two distributions at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> Any:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
        divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(-1).mean()
        return self.decoder(posterior.rsample()), divergence


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_scale = nn.Linear(6, 3), nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        normal = torch.distributions.Independent(torch.distributions.Normal(self.mean(x), self.log_scale.exp()), 1)
        action = normal.sample()
        choice = torch.distributions.Categorical(logits=self.mean(x))
        chosen = choice.sample()
        return action, normal.log_prob(action), normal.entropy(), choice.log_prob(chosen), chosen


class Masked(nn.Module):
    """torch looks whether the mask is the causal one."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.transformer(source, target, tgt_mask=self.mask)


class Parametrized(nn.Module):
    """The power iteration of spectral norm writes its buffers in a no_grad region."""

    def __init__(self) -> None:
        super().__init__()
        made = nn.utils.parametrizations
        self.first = made.spectral_norm(nn.Linear(6, 6))
        self.second = made.weight_norm(nn.Linear(6, 4))
        self.third = made.orthogonal(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x).relu()))


class Codebook(nn.Module):
    """Moves its entries to the means of what is assigned to them, without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("entries", torch.randn(8, 4))
        self.register_buffer("counts", torch.ones(8))

    def forward(self, x: torch.Tensor) -> Any:
        latent = self.layer(x)
        nearest = F.one_hot(torch.cdist(latent, self.entries).argmin(-1), 8).to(x.dtype)
        quantized = nearest @ self.entries
        with torch.no_grad():
            self.counts.mul_(0.9).add_(nearest.sum(0), alpha=0.1)
            self.entries.mul_(0.9).add_(nearest.T @ latent / self.counts[:, None], alpha=0.1)
            scale = torch.ones(4)
            scale[1:3] = latent[0, 1:3]
            scale.clamp_(min=0.5)
        return (latent + (quantized - latent).detach()) * scale, F.mse_loss(latent, quantized.detach())


class Hypernetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker, self.target = nn.Linear(6, 30), nn.Linear(6, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.maker(x).mean(0)
        return torch.func.functional_call(self.target, {"weight": made[:24].view(4, 6), "bias": made[24:28]}, (x,))


class Contrastive(nn.Module):
    """Writes the diagonal of a matrix; draws a number for each row into memory that nobody has written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.empty(x.shape[0], 1).bernoulli_(0.8).div_(0.8)
        latent = F.normalize(self.layer(x) * kept + 0.1, dim=-1)
        similar = latent @ latent.T
        similar.fill_diagonal_(-10.0)
        return F.cross_entropy(similar, torch.arange(x.shape[0]).roll(1))


class Packed(nn.Module):
    """The rows of the packed sequences are as many as the lengths say."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 4, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        results, state = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(results, batch_first=True)[0], state


_SOURCES = {Masked: lambda count: (torch.randn(count, 7, 8), torch.randn(count, 5, 8))}


class ChoosesKernels(nn.Module):
    """Keeps the kernels of attention that it allows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.backends = nn.Linear(6, 6), [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)[None]
        with sdpa_kernel(self.backends):
            return F.scaled_dot_product_attention(y, y, y)


class NamesItsParts(nn.Module):
    """Makes a class of named tuples at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Parts = collections.namedtuple("Parts", ["mean", "rest"])
        parts = Parts(*self.linear(x).split([1, 3], -1))
        return parts.mean * parts.rest


@torch.jit.script_if_tracing
def _doubled_if_long(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        return x * 2
    return x


class ScriptsInTraces(nn.Module):
    """Calls what a trace of torch's would compile; eager runs the Python function."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _doubled_if_long(self.linear(x))


@pytest.mark.parametrize(
    "kind",
    [
        Vae, Actor, Masked, Parametrized, Codebook, Hypernetwork, Contrastive, ChoosesKernels, NamesItsParts, ScriptsInTraces,
    ],
)  # fmt: skip
def test_runs_from_a_graph_cold_and_warm(kind: type[nn.Module]) -> None:
    torch.manual_seed(3)
    module = kind()
    for _ in range(2):  # the second time from the cache
        twins = Twins(copy.deepcopy(module), fallback="error")
        for count in (4, 4, 6):
            twins.call(*_SOURCES.get(kind, lambda count: (torch.randn(count, 6),))(count))
        assert twins.status.bypass == []
    assert twins.status.exports == 0


def test_lengths_of_packed_sequences_may_change() -> None:
    torch.manual_seed(3)
    twins = Twins(Packed())
    for lengths in ([5, 2, 3], [5, 4, 1], [5, 5, 5], [4, 2, 3]):
        twins.call(torch.randn(3, 5, 6), torch.tensor(lengths))
    assert twins.status.exports == 1


def test_an_operator_that_returns_other_sizes_than_it_promises_runs_in_eager() -> None:
    @torch.library.custom_op("idioms::positive", mutates_args=())
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    @positive.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(3)

    class Picks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return positive(F.dropout(x.detach(), 0.2)).sum() + x.sum()

    twins = Twins(Picks())
    torch.manual_seed(0)
    for step in range(4):
        twins.call(torch.tensor([1.0, -1.0, 2.0, 3.0]) if step == 0 else torch.randn(4))
    assert twins.status.source == "eager"


class Profiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("linear"):
            return self.linear(x).tanh()


def test_a_range_of_a_profile_is_no_part_of_the_graph() -> None:
    twins = Twins(Profiled(), fallback="error")
    for batch in (3, 3, 5, 2):
        twins.call(torch.randn(batch, 4))
    assert (twins.status.exports, twins.status.bypass) == (1, [])


class Entropy(nn.Module):
    """A distribution computes its probabilities with gradients on, wherever it is asked for them."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.linear, self.whole = nn.Linear(4, 3), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.linear(x)
        if self.whole:
            with torch.enable_grad():
                logits = logits.sin() + self.linear.bias
        return torch.distributions.Categorical(logits=logits).entropy()


def test_a_distribution_has_an_entropy_without_gradients(tmp_path: Path) -> None:
    for source in ("export", "local"):
        twins = Twins(Entropy(whole=False), cache_dir=tmp_path, fallback="error")
        with torch.no_grad():
            for batch in (3, 3, 5):
                twins.call(torch.randn(batch, 4))
        assert twins.status.exports == (source == "export")


def test_gradients_that_a_call_without_them_computes_run_in_eager() -> None:
    twins = Twins(Entropy(whole=True))
    with torch.no_grad():
        twins.call(torch.randn(3, 4))
    assert twins.reasons() == ["grad_mode_region"]
