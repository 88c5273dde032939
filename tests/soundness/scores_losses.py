"""Lists ways to make a loss of scores, and to return both; scores_parts.py explains the names in the texts."""

from __future__ import annotations

from scores_parts import Table

ARGUMENTS = (
    "",
    "reduction='sum'",
    "reduction='none'",
    "ignore_index=1",
    "label_smoothing=0.1",
    "weight=self.weights.to(s.dtype)",
    "ignore_index=0, label_smoothing=0.3",
    "weight=self.weights.to(s.dtype), label_smoothing=0.1",
    "reduction='sum', weight=self.weights.to(s.dtype)",
    "reduction='none', weight=self.weights.to(s.dtype), ignore_index=1",
    "reduction='none', label_smoothing=0.2",
    "reduction='sum', ignore_index=-1, label_smoothing=1.0",
)
_HEAD = "self.w2 = P($C, $K)"
LOSSES: Table = {
    "cross_entropy": ("", "F.cross_entropy(s, y, $O)"),
    "module": ("", "nn.CrossEntropyLoss($O)(s, y)"),
    "nll_loss": ("", "F.nll_loss(F.log_softmax(s, $D), y, $O)"),
    "probabilities": ("", "F.cross_entropy(s, torch.softmax(3 * s.detach().sin(), $D), $O)"),
    "one-hot labels": ("", "F.cross_entropy(s, F.one_hot(y.clamp(min=0), $N).to(s.dtype).movedim(-1, $D), $O)"),
    "logsumexp": ("", "(torch.logsumexp(s, $D) - s.gather($D, y.clamp(min=0).unsqueeze($D)).squeeze($D)).mean()"),
}
# An argument that a loss does not know.
UNKNOWN = {"nll_loss": "label_smoothing", "probabilities": "ignore_index", "one-hot labels": "ignore_index"}
FURTHER: Table = {
    "none": ("", ""),
    "mean": ("", "loss = loss.mean()"),
    "sum": ("", "loss = loss.sum()"),
    "divided": ("", "loss = loss / 4"),
    "double": ("", "loss = loss.double()"),
    "twice": ("", "loss = loss + loss"),
    "logarithm": ("", "loss = torch.log1p(loss.abs())"),
    "learned factor": ("self.factor = P()", "loss = loss * self.factor"),
    "uncertainty": ("self.factor = P()", "loss = loss * torch.exp(-self.factor) + self.factor"),
    "masked": ("", "loss = (loss * (y != 3)).sum() / (y != 3).sum()"),
    "focal": ("", "loss = ((1 - torch.exp(-F.cross_entropy(s, y, reduction='none'))) ** 2 * loss).mean()"),
    "z-loss": ("", "loss = loss + 1e-2 * torch.logsumexp(s, $D).square().mean()"),
    "squares": ("", "loss = loss + 1e-3 * s.square().mean()"),
    "of scores": ("", "loss = loss + z.mean()"),
    "of features": ("", "loss = loss + h.square().mean()"),
    "of parameters": ("", "loss = loss + 1e-3 * sum(p.square().sum() for p in self.parameters())"),
    "again": ("", "loss = loss + 0.5 * F.cross_entropy(s, y)"),
    "smooth": ("", "loss = loss + F.cross_entropy(s, y, label_smoothing=0.2)"),
    "separate": ("", "more.append(F.cross_entropy(s, y, reduction='sum'))"),
    "kl_div": ("", "loss = loss + F.kl_div(F.log_softmax(s, $D), torch.softmax(s.detach().cos(), $D), reduction='batchmean')"),
    "binary": ("", "loss = loss + F.binary_cross_entropy_with_logits(s, torch.sigmoid(s.detach().cos()))"),
    "distillation": ("", "loss = loss + F.mse_loss(s, s.detach().sin())"),
    "entropy": ("", "p = torch.softmax(s, $D); loss = loss - 0.1 * (p * torch.log(p + 1e-6)).sum()"),
    "second head": (
        _HEAD,
        "w = F.linear(h, self.w2); loss = loss + F.cross_entropy(w.view(-1, $C), t.view(-1)); more.append(w)",
    ),
    "second head apart": (_HEAD, "loss = loss + F.cross_entropy(F.linear(torch.cos(h), self.w2).view(-1, $C), t.view(-1))"),
    "accuracy": ("", "more.append((s.argmax($D) == y).sum())"),
    "likelihood": ("", "more.append(torch.exp(-loss))"),
    "log_softmax": ("", "more.append(F.log_softmax(s, $D))"),
    "softmax": ("", "more.append(torch.softmax(z, -1))"),
}
# The loss comes first, the scores are second.
RESULTS: Table = {
    name: ("", text)
    for name, text in {
        "tuple": "(loss, z, *more)",
        "dict": "{'loss': loss, 'logits': z, 'more': more}",
        "twice": "(loss, z, z, *more)",
        "of the loss": "(loss, s, *more)",
        "both": "(loss, z, s, *more)",
        "both, the loss's first": "(loss, s, z, *more)",
        "before they change": "(loss, first, *more)",
        "before and after": "(loss, z, first, *more)",
        "detached": "(loss, z.detach(), *more)",
        "detached too": "(loss, z, z.detach(), *more)",
        "flat": "(loss, z.view(-1), *more)",
        "some": "(loss, z[:1], *more)",
        "every second class": "(loss, z[..., ::2], *more)",
        "transposed": "(loss, z.transpose(0, 1), *more)",
        "viewed": "(loss, z.view(z.shape), *more)",
        "in a batch": "(loss, z[None], *more)",
        "cloned": "(loss, z.clone(), *more)",
        "scaled": "(loss, z * 2, *more)",
        "double": "(loss, z.double(), *more)",
        "log_softmax": "(loss, F.log_softmax(z, -1), *more)",
        "argmax": "(loss, z, z.argmax(-1), *more)",
        "features": "(loss, z, h, *more)",
        "input": "(loss, z, x, *more)",
        "parameter": "(loss, z, next(self.parameters()), *more)",
        "loss twice": "(loss, z, loss, *more)",
        "no scores": "(loss, loss.detach(), *more)",
    }.items()
}
