"""Images: adversarial and variational models, siamese networks, transformers with einops, diffusion, detection."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange
from torch import nn
from torch.nn import functional as F

Wrap = Callable[[nn.Module], nn.Module]


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, 1), nn.Conv2d(16, 32, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(32 * 144, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = torch.flatten(self.dropout1(x), 1)
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


def mnist(wrap: Wrap) -> Iterator[float]:
    """PyTorch's mnist example: convolutions, dropout, a last batch that is smaller, a test after each epoch."""

    model = wrap(_Net())
    images, labels = torch.randn(60, 1, 28, 28), torch.randint(10, (60,))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    while True:
        model.train()
        for start in range(0, 60, 16):
            optimizer.zero_grad()
            loss = F.nll_loss(model(images[start : start + 16]), labels[start : start + 16])
            loss.backward()
            optimizer.step()
            yield loss.item()
        model.eval()
        with torch.no_grad():
            model(images[:20]).argmax(dim=1, keepdim=True)


def resnet(wrap: Wrap) -> Iterator[float]:
    """torchvision's reference script: label smoothing, a moving average of the weights, validation in inference mode."""
    from torchvision.models import resnet18

    torch.manual_seed(0)
    own = resnet18(num_classes=10)
    model = wrap(own)
    average = torch.optim.swa_utils.AveragedModel(own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in itertools.count():
        images, labels = torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 7:
            average.update_parameters(own)
            model.eval()
            with torch.inference_mode():
                model(images)
            model.train()
        yield loss.item()


def dcgan(wrap: Wrap) -> Iterator[float]:
    """PyTorch's dcgan example: two models, three backwards a step, one through a frozen discriminator."""
    width, noise = 16, 24
    generator = wrap(nn.Sequential(
        nn.ConvTranspose2d(noise, width * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(width * 2), nn.ReLU(True),
        nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
    ))  # fmt: skip
    discriminator = wrap(nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
    ))  # fmt: skip
    criterion = nn.BCELoss()
    optimizers = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (discriminator, generator)]
    while True:
        discriminator.zero_grad()
        real = torch.randn(8, 3, 16, 16)
        label = torch.full((8,), 1.0)
        loss_real = criterion(discriminator(real).view(-1), label)
        loss_real.backward()
        fake = generator(torch.randn(8, noise, 1, 1))
        label.fill_(0.0)
        loss_fake = criterion(discriminator(fake.detach()).view(-1), label)
        loss_fake.backward()
        optimizers[0].step()
        generator.zero_grad()
        label.fill_(1.0)
        loss = criterion(discriminator(fake).view(-1), label)
        loss.backward()
        optimizers[1].step()
        yield (loss_real + loss_fake + loss).item()


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(196, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.fc3, self.fc4 = nn.Linear(8, 64), nn.Linear(64, 196)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def reparameterize(self, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
        deviation = torch.exp(0.5 * log_variance)
        return mean + torch.randn_like(deviation) * deviation

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(x.view(-1, 196))
        return self.decode(self.reparameterize(mean, log_variance)), mean, log_variance


def vae(wrap: Wrap) -> Iterator[float]:
    """PyTorch's vae example: a draw in the forward, a loss of two terms, and `decode` called outside of the forward."""

    model = wrap(_Vae())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in itertools.count():
        images = torch.rand(16, 1, 14, 14)
        optimizer.zero_grad()
        found, mean, log_variance = model(images)
        loss = F.binary_cross_entropy(found, images.view(-1, 196), reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                model.decode(torch.randn(4, 8))
        yield loss.item()


class _Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
        self.fc = nn.Sequential(nn.Linear(144, 32), nn.ReLU(inplace=True), nn.Linear(32, 1))

    def forward_once(self, x: torch.Tensor) -> torch.Tensor:
        found = self.trunk(x)
        return found.view(found.size()[0], -1)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        both = torch.cat((self.forward_once(first), self.forward_once(second)), 1)
        return torch.sigmoid(self.fc(both))


def siamese(wrap: Wrap) -> Iterator[float]:
    """PyTorch's siamese_network example: one trunk applied twice by a method of the model."""

    model = wrap(_Siamese())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        first, second, same = torch.randn(8, 1, 28, 28), torch.randn(8, 1, 28, 28), torch.randint(2, (8,)).float()
        loss = F.binary_cross_entropy(model(first, second).squeeze(), same)
        loss.backward()
        optimizer.step()
        yield loss.item()


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.to_qkv, self.to_out = nn.LayerNorm(32), nn.Linear(32, 96, bias=False), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=4) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        weights = (torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(8)).softmax(dim=-1)
        return self.to_out(rearrange(torch.matmul(weights, v), "b h n d -> b n (h d)"))


class _Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_patches = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=4, p2=4), nn.LayerNorm(48), nn.Linear(48, 32)
        )
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 26, 32))
        self.layers = nn.ModuleList(_Attention() for _ in range(3))
        self.head = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.to_patches(images)
        batch, count, _ = x.shape
        x = torch.cat((repeat(self.token, "1 1 d -> b 1 d", b=batch), x), dim=1) + self.places[:, : count + 1]
        for layer in self.layers:
            x = layer(x) + x
        return self.head(reduce(x, "b n d -> b d", "mean"))


def vit_einops(wrap: Wrap) -> Iterator[float]:
    """vit-pytorch: einops' functions and layers, `repeat` of a class token."""
    model = wrap(_Vit())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        loss = F.cross_entropy(model(torch.randn(8, 3, 20, 20)), torch.randint(10, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def faster_rcnn(wrap: Wrap) -> Iterator[float]:
    """torchvision's detection reference: lists of images and of dicts in, a dict of losses out."""
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator

    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
    backbone.out_channels = 16
    anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))
    model = wrap(FasterRCNN(
        backbone, 4, rpn_anchor_generator=anchors, min_size=64, max_size=96, box_detections_per_img=10,
        rpn_pre_nms_top_n_train=100, rpn_post_nms_top_n_train=50, box_batch_size_per_image=16,
    ))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    while True:
        images = [torch.rand(3, 64, 80), torch.rand(3, 72, 64)]
        corners = [torch.randint(0, 30, (2, 2)).float() for _ in images]
        targets = [{"boxes": torch.cat([c, c + 20], 1), "labels": torch.randint(1, 4, (2,))} for c in corners]
        losses = sum(model(images, targets).values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        yield losses.item()
