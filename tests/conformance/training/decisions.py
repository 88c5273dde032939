"""Decisions and structures: reinforcement learning, optimizers with closures, networks on graphs, recurrent control."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

Wrap = Callable[[nn.Module], nn.Module]
SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


def _environment(length: int) -> Iterator[torch.Tensor]:
    """Yields states of a pole that nobody balances well; it takes no action, so that rounding changes no episode."""
    return (torch.randn(1, 4) * 0.1 + 0.05 * i for i in range(length))


class _ReinforcePolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine1, self.dropout, self.affine2 = nn.Linear(4, 64), nn.Dropout(p=0.3), nn.Linear(64, 2)
        self.saved_log_probs: list[torch.Tensor] = []
        self.rewards: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=1)


def reinforce(wrap: Wrap) -> Iterator[float]:
    """PyTorch's reinforce example: the policy keeps what it did and earned on itself between its calls."""

    policy = wrap(_ReinforcePolicy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    while True:
        for state in _environment(6):
            chosen = Categorical(policy(state))
            action = chosen.sample()
            policy.saved_log_probs.append(chosen.log_prob(action))
            policy.rewards.append(1.0 - 0.1 * state.abs().sum().item())
        total, returns = 0.0, []
        for reward in policy.rewards[::-1]:
            total = reward + 0.99 * total
            returns.insert(0, total)
        scaled = torch.tensor(returns)
        scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-6)
        optimizer.zero_grad()
        losses = [-log_prob * gain for log_prob, gain in zip(policy.saved_log_probs, scaled, strict=True)]
        loss = torch.cat(losses).sum()
        loss.backward()
        optimizer.step()
        del policy.rewards[:]
        del policy.saved_log_probs[:]
        yield loss.item()


class _ActorCriticPolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)
        self.saved_actions: list[SavedAction] = []
        self.rewards: list[float] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def actor_critic(wrap: Wrap) -> Iterator[float]:
    """PyTorch's actor_critic example: two heads, named tuples kept on the model."""

    model = wrap(_ActorCriticPolicy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    while True:
        for state in _environment(6):
            probabilities, value = model(state)
            chosen = Categorical(probabilities)
            action = chosen.sample()
            model.saved_actions.append(SavedAction(chosen.log_prob(action), value))
            model.rewards.append(1.0)
        losses = []
        for (log_prob, value), gain in zip(model.saved_actions, range(6, 0, -1), strict=True):
            losses.append(-log_prob.sum() * (gain - value.item()) + F.smooth_l1_loss(value, torch.tensor([[float(gain)]])))
        optimizer.zero_grad()
        loss = torch.stack(losses).sum()
        loss.backward()
        optimizer.step()
        del model.rewards[:]
        del model.saved_actions[:]
        yield loss.item()


class _Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 16), nn.LSTMCell(16, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, future: int = 0) -> torch.Tensor:
        outputs = []
        h1, c1, h2, c2 = (torch.zeros(x.size(0), 16, dtype=x.dtype) for _ in range(4))
        for value in x.split(1, dim=1):
            h1, c1 = self.lstm1(value, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for _ in range(future):
            h1, c1 = self.lstm1(output, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def lbfgs(wrap: Wrap) -> Iterator[float]:
    """PyTorch's time_sequence_prediction example: LSTM cells in a Python loop, LBFGS with a closure."""

    model = wrap(_Sequence().double())
    waves = torch.sin(torch.arange(25, dtype=torch.float64) / 5 + torch.rand(6, 1, dtype=torch.float64) * 6)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(waves[:, :-1]), waves[:, 1:])
        loss.backward()
        return loss

    for step in itertools.count():
        loss = optimizer.step(closure)
        if step % 10 == 9:
            with torch.no_grad():
                model(waves[:2, :-1], future=5)
        yield loss.item()


class _Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int, heads: int, joined: bool) -> None:
        super().__init__()
        self.heads, self.joined, self.width = heads, joined, outputs // heads if joined else outputs
        self.W = nn.Parameter(torch.randn(inputs, self.width * heads) * 0.3)
        self.a = nn.Parameter(torch.randn(heads, 2 * self.width, 1) * 0.3)
        self.leakyrelu = nn.LeakyReLU(0.2)

    def forward(self, h: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        nodes = h.shape[0]
        x = F.dropout(torch.mm(h, self.W), 0.2, training=self.training)
        x = x.view(nodes, self.heads, self.width).permute(1, 0, 2)
        sources, targets = torch.matmul(x, self.a[:, : self.width]), torch.matmul(x, self.a[:, self.width :])
        scores = self.leakyrelu(sources + targets.mT)
        scores = torch.where(edges > 0, scores, -9e16 * torch.ones_like(scores))
        found = torch.matmul(F.dropout(F.softmax(scores, dim=-1), 0.2, training=self.training), x)
        return found.permute(1, 0, 2).contiguous().view(nodes, -1) if self.joined else found.mean(dim=0)


class _Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.elu, self.second = _Layer(12, 32, 4, True), nn.ELU(), _Layer(32, 5, 1, False)

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, edges = inputs
        return F.log_softmax(self.second(self.elu(self.first(x, edges)), edges), dim=1)


def graph_attention(wrap: Wrap) -> Iterator[float]:
    """PyTorch's gat example: dense attention over a graph's edges, masks of nodes, evaluation after each step."""

    model = wrap(_Gat())
    features, labels = torch.randn(40, 12), torch.randint(5, (40,))
    edges = ((torch.rand(40, 40) < 0.1) | torch.eye(40, dtype=torch.bool)).float()
    known = torch.arange(40) < 24
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    while True:
        model.train()
        optimizer.zero_grad()
        output = model((features, edges))
        loss = F.nll_loss(output[known], labels[known])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model((features, edges))
        yield loss.item()


class _Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 32), nn.Linear(32, 7)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.embed(tokens))
        if hidden.mean().item() > 0:
            hidden = hidden * 0.9
        return self.out(hidden)


def lengths_and_a_branch(wrap: Wrap) -> Iterator[float]:
    """A tagger that asks for a value in its forward, at twenty lengths: what a graph cannot serve has to cost nothing."""

    model = wrap(_Tagger())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for length in itertools.cycle(range(10, 30)):
        tokens = torch.randint(50, (16, length))
        loss = F.cross_entropy(model(tokens).flatten(0, 1), torch.randint(7, (16 * length,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
