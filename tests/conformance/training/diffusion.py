"""Diffusion: a U-Net of diffusers' shape with time, attention and skips, and a moving average of its weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

Wrap = Callable[[nn.Module], nn.Module]


def _times(steps: torch.Tensor, width: int) -> torch.Tensor:
    """Returns sines and cosines of time steps: [batch] to [batch, width]."""
    exponent = -math.log(10000) * torch.arange(0, width // 2, dtype=torch.float32, device=steps.device)
    angles = steps[:, None].float() * torch.exp(exponent / (width // 2 - 1))[None, :]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs, eps=1e-6), nn.GroupNorm(4, outputs, eps=1e-6)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.dropout = nn.Linear(64, outputs), nn.Dropout(0.1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        h = self.conv2(self.dropout(F.silu(self.norm2(h))))
        return (self.shortcut(x) if self.shortcut is not None else x) + h


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(4, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, height, breadth = x.shape
        flat = self.norm(x).view(batch, width, height * breadth).transpose(1, 2)
        q, k, v = (t.view(batch, -1, 4, width // 4).transpose(1, 2) for t in self.qkv(flat).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)
        return self.out(y).transpose(-1, -2).reshape(batch, width, height, breadth) + x


class _UNet(nn.Module):
    """x: [batch, 3, height, width], steps: [batch]."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64))
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.down1, self.down2 = _Residual(16, 16), _Residual(16, 32)
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.middle, self.attention = _Residual(32, 32), _Attention(32)
        self.up1, self.up2 = _Residual(64, 32), _Residual(48, 16)
        self.grow = nn.Conv2d(32, 32, 3, padding=1)
        self.norm, self.last = nn.GroupNorm(4, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        time = self.time(_times(steps, 16))
        a = self.down1(self.first(x), time)
        b = self.down2(self.shrink(a), time)
        h = self.up1(torch.cat([self.attention(self.middle(b, time)), b], 1), time)
        h = self.grow(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(self.up2(torch.cat([h, a], 1), time))))


def diffusion(wrap: Wrap) -> Iterator[float]:
    """Denoising diffusion: noise is predicted at random steps; the weights' average follows."""
    own = _UNet()
    model = wrap(own)
    average = {name: parameter.detach().clone() for name, parameter in own.named_parameters()}
    noise_left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in itertools.count():
        images, noise, steps = torch.randn(4, 3, 16, 16), torch.randn(4, 3, 16, 16), torch.randint(100, (4,))
        left = noise_left[steps][:, None, None, None]
        loss = F.mse_loss(model(left.sqrt() * images + (1 - left).sqrt() * noise, steps), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, parameter in own.named_parameters():
                average[name].lerp_(parameter, 0.05)
        yield loss.item()
