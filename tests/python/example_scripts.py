"""Small training scripts as people write them. Each takes `wrap`, which is given a module, and returns what is compared."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)  # the models are too small for more

Wrap = Callable[[nn.Module], nn.Module]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))


def transformers_trainer(wrap: Wrap, directory: pathlib.Path) -> Any:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    model = wrap(BertForSequenceClassification(config))
    tokens = torch.randint(0, 50, (32, 8), generator=torch.Generator().manual_seed(1))
    dataset = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row[0] % 2} for row in tokens]
    arguments = TrainingArguments(
        output_dir=str(directory), max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-3,
        report_to=[], use_cpu=True, save_strategy="no", logging_steps=1, disable_tqdm=True, eval_strategy="steps", eval_steps=2,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, eval_dataset=dataset[:8])
    trainer.train()
    trainer.save_model(str(directory))
    history = [{k: v for k, v in entry.items() if k in ("loss", "grad_norm", "eval_loss")} for entry in trainer.state.log_history]
    saved = BertForSequenceClassification.from_pretrained(str(directory))
    return history, dict(saved.state_dict())


def accelerate_loop(wrap: Wrap, directory: pathlib.Path) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = wrap(nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(numbers(24, 8), labels(24, 3)), batch_size=4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 6)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    accelerator.save_state(str(directory))
    return losses, dict(accelerator.unwrap_model(model).state_dict())


def lightning_module(wrap: Wrap, directory: pathlib.Path) -> Any:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = wrap(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)))
            self.losses: list[torch.Tensor] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.detach())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.losses.append(nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    model = Classifier()
    data = TensorDataset(numbers(16, 8), labels(16, 3))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(directory), gradient_clip_val=1.0,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=4), DataLoader(data, batch_size=8))
    return model.losses, dict(model.state_dict())


def vision_with_amp(wrap: Wrap, directory: pathlib.Path) -> Any:
    from torchvision.models.resnet import BasicBlock, ResNet

    model = wrap(ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(numbers(4, 3, 32, 32, seed=step)), labels(4, 5, seed=step))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        losses.append(model(numbers(4, 3, 32, 32)).sum())
    return losses, scaler.state_dict()["scale"]


def adversaries(wrap: Wrap, directory: pathlib.Path) -> Any:
    generator = wrap(nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6), nn.Tanh()))
    discriminator = wrap(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1)))
    optimizers = [torch.optim.Adam(each.parameters(), 1e-3, (0.5, 0.999)) for each in (generator, discriminator)]
    judge = nn.functional.binary_cross_entropy_with_logits
    losses = []
    for step in range(4):
        fake = generator(torch.randn(8, 4))
        optimizers[1].zero_grad()
        real_loss = judge(discriminator(numbers(8, 6, seed=step)), torch.ones(8, 1))
        fake_loss = judge(discriminator(fake.detach()), torch.zeros(8, 1))
        (real_loss + fake_loss).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        loss = judge(discriminator(fake), torch.ones(8, 1))
        loss.backward()
        optimizers[0].step()
        losses += [real_loss.detach(), fake_loss.detach(), loss.detach()]
    return losses, [*generator.state_dict().values(), *discriminator.state_dict().values()]


class Contrastive(nn.Module):
    """A student that predicts what its teacher, a moving average of it, makes of another view."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        self.predictor = nn.Linear(4, 4)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        prediction = nn.functional.normalize(self.predictor(self.student(one)), dim=-1)
        with torch.no_grad():
            target = nn.functional.normalize(self.teacher(other), dim=-1)
        return 2 - 2 * (prediction * target.detach()).sum(-1).mean()

    @torch.no_grad()
    def follow(self) -> None:
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.lerp_(fast, 0.05)


def contrastive_teacher(wrap: Wrap, directory: pathlib.Path) -> Any:
    model = wrap(Contrastive())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for step in range(4):
        x = numbers(8, 8, seed=step)
        loss = model(x + 0.1 * torch.randn_like(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
        losses.append(loss.detach())
    return losses, dict(model.state_dict())


class Policy(nn.Module):
    """A distribution over two actions, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.action, self.value = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(state)
        return self.action(features), self.value(features).squeeze(-1)


def policy_gradient(wrap: Wrap, directory: pathlib.Path) -> Any:
    policy = wrap(Policy())
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    seen: list[Any] = []
    for episode in range(3):
        state, terms, rewards = numbers(4, seed=episode), [], []
        for _ in range(5):
            logits, value = policy(state)
            distribution = torch.distributions.Categorical(logits=logits)
            action = distribution.sample()
            rewards.append(1.0 if action.item() == int(state[0] > 0) else -1.0)
            terms.append((distribution.log_prob(action), value, distribution.entropy()))
            state = state.roll(1) + 0.1 * (action.item() - 0.5)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = sum(-log * (r - v.detach()) + (r - v) ** 2 - 0.01 * e for (log, v, e), r in zip(terms, returns, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), rewards]
    return seen, dict(policy.state_dict())


class Tagger(nn.Module):
    """Labels each token of sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 3)

    def forward(self, tokens: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        features, state = self.rnn(self.embed(tokens), state)
        return self.out(features), state


def recurrent_lengths(wrap: Wrap, directory: pathlib.Path) -> Any:
    model = wrap(Tagger())
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses, state = [], None
    for step, length in enumerate((5, 3, 7, 5, 3, 4)):
        tokens = torch.randint(0, 20, (2, length), generator=torch.Generator().manual_seed(step))
        scores, state = model(tokens, state)
        state = tuple(each.detach() for each in state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten() % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, dict(model.state_dict())
