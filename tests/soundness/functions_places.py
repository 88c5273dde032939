"""Lists how a Net applies autograd Functions, and what else its forward computes.

$L: the names of the results; $C: the call; $F: the class; $A: the first argument; $R: the others, each after a comma; $y: one
result; $u: an expression with it. `h` is what the Net has computed so far, `first` what it began with, `more` a list of further
results. The first entry of a table is the plainest.
"""

from __future__ import annotations

PLACES = {
    "plain": "$L = $C",
    "without gradients": "with torch.no_grad():\n    $L = $C",
    "with gradients": "with torch.enable_grad():\n    $L = $C",
    "autocast": "with torch.autocast('cpu', dtype=torch.bfloat16):\n    $L = $C",
    "autocast off": "with torch.autocast('cpu', enabled=False):\n    $L = $C",
    "checkpoint": "$L = checkpoint(lambda z: $F.apply(z$R), $A, use_reentrant=False)",
    "re-entrant checkpoint": "$L = checkpoint(lambda z: $F.apply(z$R), $A, use_reentrant=True)",
    "loop": "for _ in range(2):\n    $L = $C\n    h = h * 0.5 + y0.mean()",
    "twice": "$C\n$L = $C",
    "result unread": "$C\n$L = $C",
    "attribute": "self.applied = $F\n$L = self.applied.apply($A$R)",
    "method of the Function": "apply = $F.apply\n$L = apply($A$R)",
    "submodule": "$L = self.applies($F, $A$R)",
    "in training": "$L = $C\nif self.training:\n    $L = $C",
    "hooks on what is saved": "with saved_tensors_hooks(lambda t: t.clamp(-4, 4), lambda t: t):\n    $L = $C",
}
# What becomes of further results.
USES = {
    "added": "h = $u",
    "unread": "",
    "returned": "more.append($y)",
    "returned too": "h = $u; more.append($y)",
    "twice": "h = $u; h = $u",
    "detached": "h = ($u).detach() + h",
    "without gradients": "with torch.no_grad(): $y = $u\nh = h + $y",
}
BETWEEN = {
    "nothing": "",
    "layer": "h = self.second(h)",
    "product": "h = h * self.vector",
    "tanh": "h = h.tanh()",
    "relu in place": "h = h.relu_()",
    "sum in place": "h.add_(0.1)",
    "bounds in place": "h.clamp_(-20, 20)",
    "bounds of what it was given": "given.clamp_(-6, 6)",
    "write to a view": "h[:, :2].mul_(0.5)",
    "write to a buffer": "self.buffer.mul_(0.9).add_(h.detach().mean(0))",
    "sum in a buffer": "self.buffer.add_(0.125)",
    "copy in a buffer": "self.buffer.copy_(h.detach()[0])",
    "rounded": "h = h.round() * first",
    "detached": "h = h.detach() * first",
    "dropout": "h = F.dropout(h, 0.5, self.training)",
    "without gradients": "with torch.no_grad(): other = h.abs().clamp(max=2)\nh = h * other",
    "view": "h = h.view(-1).view(h.shape)",
    "attribute": "self.auxiliary = h.detach()",
    "joined": "h = torch.cat([h, first]).view(2, *h.shape).mean(0)",
}
STARTS = {
    "layer": "first = h = self.linear(x)",
    "input": "first = h = x * self.vector",
    "dropout": "first = h = self.dropout(self.linear(x))",
    "tanh": "first = h = self.linear(x).tanh()",
    "two layers": "first = h = self.second(self.linear(x).relu())",
    "written input": "first = h = self.linear(x.clone().mul_(0.5))",
}
LOSSES = {
    "product": "(h * first).mean()",
    "sum": "h.sum()",
    "square": "h.square().mean()",
    "second layer": "(self.second(h) * first).mean()",
    "rounded": "(h.detach().round() * first).mean() + h.mean()",
    "of the first": "first.square().mean()",
}
# The loss comes first, scores are second.
RESULTS = {
    "so far": "(loss, h, *more)",
    "scaled": "(loss, h * 1.5, *more)",
    "first": "(loss, first, *more)",
    "result of the last Function": "(loss, y0, *more)",
    "copied": "(loss, h.clone(), *more)",
    "view": "(loss, h.view(-1), *more)",
    "detached": "(loss, h.detach(), *more)",
    "dict": "{'loss': loss, 'scores': h, 'more': more}",
    "twice": "(loss, h, h, *more)",
    "mean": "(loss, h.mean(), *more)",
    "sum too": "(loss, h * 1.5, h.sum(), *more)",
}
