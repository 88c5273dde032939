"""Models as people post them, with what they do to sizes: one export where nothing else is needed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from dynamic_models import Call, Model, x
from torch import nn
from torch.nn import functional as F


class GroupedExperts(nn.Module):
    """Each token goes through the expert that scores highest, in one grouped product. x: [tokens, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 32)), nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, expert = self.gate(x).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        ends = torch.histc(expert.float(), bins=4, min=0, max=3).cumsum(0).to(torch.int32)
        hidden, gate = F.grouped_mm(x[order], self.up, offs=ends).chunk(2, dim=-1)
        found = F.grouped_mm(hidden * gate.sigmoid(), self.down, offs=ends)
        return torch.zeros_like(x).index_copy(0, order, found) * weight.unsqueeze(-1)


class Rotary(nn.Module):
    """Positions as rotations, kept as complex numbers in a plain attribute. x: [batch, length, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        angles = torch.outer(torch.arange(16.0), torch.tensor([1.0, 0.1, 0.01]))
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(self.linear(x).unflatten(-1, (3, 2)))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]] * 2j).flatten(2)


class Fourier(nn.Module):
    """A convolution by low frequencies, written into zeros. x: [batch, length, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 2, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.fft.rfft(x, dim=1)
        out = torch.zeros(x.shape[0], found.shape[1], 4, dtype=torch.cfloat)
        out[:, :2] = torch.einsum("bki,iok->bko", found[:, :2], self.weight)
        out[..., 0] = 1.0
        return torch.fft.irfft(out, n=x.shape[1], dim=1)


class Checked(nn.Module):
    """Raises for tokens that it does not know, and for what is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        assert ids.max() < 9, f"no token {ids.max()}"
        x = F.dropout(self.out(self.tokens(ids))) * scale
        if torch.isnan(x).any() or torch.isinf(x).any():
            what = "not finite"
            raise ValueError(what)
        return x


def scaled(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Powers and quotients of sizes with fractions."""
    return self.linear(x) * x.shape[-1] ** -0.5 / (x.shape[-1] / 2.5) * divmod(x.shape[-1], 2.5)[0]


def from_numbers(self: Model, x: torch.Tensor) -> torch.Tensor:
    """The constructor that torch.tensor replaced."""
    return self.linear(x) * torch.Tensor([1e2]).expand(x.shape[0], 1) + torch.Tensor(1, 8).fill_(0.5)


def stepped(self: Model, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    """A loop over what may have as many items as the batch."""
    for i in range(len(times) - 1):
        x = x + torch.tanh(x @ self.matrix) * (times[i + 1] - times[i])
    return x


def halved(self: Model, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two batches through one layer, and then apart."""
    first, second = self.linear(torch.cat([x, y])).chunk(2)
    return (first * second).sum(0)


def images_in_rows(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Each dimension may be another one alone; not all of them together. x: [batch, 3, 4]."""
    rows = x.view(-1, 12)
    return self.linear(rows[:, :6]) * rows[:, 6:].mean()


def heads_as_samples(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Heads go to the batch and back, as in set transformers."""
    heads = torch.cat(self.linear(x).split(2, dim=-1), 0)
    return torch.cat((heads @ heads.transpose(1, 2) @ heads).split(x.size(0), 0), -1)


class StyledConvolution(nn.Module):
    """Weights of its own for each sample, as groups of one convolution. x: [batch, 3, height, width], z: [batch, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(1, 5, 3, 3, 3)), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        weight = (self.weight * self.style(z).view(batch, 1, channels, 1, 1)).view(batch * 5, channels, 3, 3)
        y = F.conv2d(x.reshape(1, batch * channels, height, width), weight, padding=1, groups=batch)
        return y.view(batch, 5, height, width)


def map_of_image(self: Model, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A target for each four steps. x: [batch, 4 * length, 6], y: [batch, length]."""
    return F.mse_loss(self.linear(x.unflatten(1, (-1, 4)).mean(2)).sum(-1), y)


def next_token(self: Model, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A target with one more than what is read. x: [batch, length, 6], y: [batch, length + 1]."""
    return F.mse_loss(self.linear(x).sum(-1), y[:, 1:])


def last_part(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Parts of three, the last of which has what is left."""
    return self.linear(x.split(3, dim=1)[-1])


def large(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Constants that are as large as activations."""
    half, places = torch.full((x.size(0), 1 << 21), 0.5), torch.arange(x.size(0) * (1 << 20))
    return self.linear(x).sum(1) * half.mean(1) + places.view(x.size(0), -1).amax(1) / (1 << 20)


def times(count: int) -> torch.Tensor:
    return torch.linspace(0, 1, count)


# The model, its calls, how many exports they take.
IDIOMS: dict[str, tuple[Callable[[], nn.Module], list[Call], int]] = {
    **{
        forward.__name__: ((lambda forward=forward: Model(forward)), [x(4, 6), x(7, 6), x(2, 6)], 1)
        for forward in (scaled, from_numbers, large)
    },
    "halved": (lambda: Model(halved), [(*x(4, 6), *x(4, 6)), (*x(7, 6), *x(7, 6)), (*x(3, 6), *x(3, 6))], 1),
    "map of an image": (
        lambda: Model(map_of_image),
        [(*x(3, 8, 6), *x(3, 2)), (*x(4, 20, 6), *x(4, 5)), (*x(2, 12, 6), *x(2, 3))],
        1,
    ),
    "next token": (
        lambda: Model(next_token),
        [(*x(3, 8, 6), *x(3, 9)), (*x(4, 20, 6), *x(4, 21)), (*x(2, 3, 6), *x(2, 4))],
        1,
    ),
    "styles": (StyledConvolution, [(*x(2, 3, 8, 9), *x(2, 6)), (*x(4, 3, 7, 9), *x(4, 6)), (*x(3, 3, 5, 5), *x(3, 6))], 1),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv1d(5, 4, 2), nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        [x(2, 5, 8), x(3, 5, 7), x(4, 5, 11)],
        1,
    ),
    "images in rows": (lambda: Model(images_in_rows), [x(4, 3, 4), x(6, 3, 4), x(2, 3, 4)], 1),
    "heads as samples": (lambda: Model(heads_as_samples), [x(4, 5, 6), x(7, 3, 6), x(2, 9, 6)], 1),
    "last part": (lambda: Model(last_part), [x(4, 5, 6), x(7, 6, 6), x(2, 4, 6), x(2, 8, 6)], 2),
    "as many samples as features": (lambda: nn.Linear(6, 8), [x(6, 6), x(4, 6), x(9, 6)], 1),
    "as many samples as channels": (lambda: nn.Conv2d(2, 3, 3), [x(2, 2, 9, 9), x(3, 2, 7, 7), x(4, 2, 8, 8)], 1),
    "as many samples as steps": (lambda: Model(stepped), [(*x(4, 6), times(4)), (*x(7, 6), times(4)), (*x(3, 6), times(4))], 1),
    "rotations": (Rotary, [x(4, 5, 6), x(7, 3, 6), x(2, 9, 6)], 1),
    "frequencies": (Fourier, [x(4, 5, 6), x(7, 3, 6), x(2, 8, 6)], 1),
    **({"grouped experts": (GroupedExperts, [x(12, 8), x(5, 8), x(30, 8)], 1)} if hasattr(F, "grouped_mm") else {}),
}
