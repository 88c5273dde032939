"""Frameworks around the loop: accelerate, Lightning, mixed precision, checkpointed layers."""

from __future__ import annotations

import logging
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Wrap = Callable[[nn.Module], nn.Module]


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))


def accelerate_loop(wrap: Wrap) -> Iterator[float]:
    """accelerate's example: prepared model, optimizer and loader, accumulated gradients."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = torch.utils.data.TensorDataset(torch.randn(96, 32), torch.randint(4, (96,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    own = wrap(_perceptron())
    model, optimizer, loader = accelerator.prepare(own, torch.optim.AdamW(own.parameters(), lr=1e-3), loader)
    while True:
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            yield loss.item()


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 96), nn.Linear(96, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 96), nn.GELU()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.last(x)


def mixed_precision(wrap: Wrap) -> Iterator[float]:
    """A loop under autocast to bfloat16 with layers that are checkpointed."""
    model = wrap(_Checkpointed())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        inputs, labels = torch.randn(32, 32), torch.randint(4, (32,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def lightning_inner(wrap: Wrap) -> Iterator[float]:
    """Lightning with the module that computes wrapped in the LightningModule's constructor."""
    return fitted(lambda module: module, wrap)


def lightning_whole(wrap: Wrap) -> Iterator[float]:
    """Lightning with the LightningModule itself wrapped, as a user who changes one line does."""
    return fitted(wrap, lambda module: module)


class _Lit(lightning.LightningModule):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        return F.cross_entropy(self(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class _Turns(lightning.Callback):
    """Tells the loss of each step once the next one is about to begin, and lets that begin at the next of `turns`."""

    def __init__(self, turns: queue.SimpleQueue[None], told: queue.SimpleQueue[float | BaseException]) -> None:
        self.turns, self.told = turns, told
        self._loss: float | None = None

    def on_train_batch_start(self, *_: object) -> None:
        if self._loss is not None:
            self.told.put(self._loss)
            self.turns.get()

    def on_train_batch_end(self, trainer: object, module: object, outputs: dict[str, torch.Tensor], *_: object) -> None:
        self._loss = outputs["loss"].item()


def fitted(wrap_all: Wrap, wrap_inner: Wrap, **options: Any) -> Iterator[float]:
    """Yields the losses of Trainer.fit, which runs in a thread of its own and waits between two steps.

    options: the trainer's
    """
    turns: queue.SimpleQueue[None] = queue.SimpleQueue()
    told: queue.SimpleQueue[float | BaseException] = queue.SimpleQueue()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = torch.utils.data.TensorDataset(torch.randn(96, 32), torch.randint(4, (96,)))
    trainer = lightning.Trainer(
        max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[_Turns(turns, told)], default_root_dir=tempfile.gettempdir(), **options,
    )  # fmt: skip
    model = wrap_all(_Lit(wrap_inner(_perceptron())))

    def fit() -> None:
        try:
            trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
        except BaseException as error:
            told.put(error)

    threading.Thread(target=fit, daemon=True).start()
    while True:
        loss = told.get()
        if isinstance(loss, BaseException):
            raise loss
        yield loss
        turns.put(None)
