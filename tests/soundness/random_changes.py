"""Changes that any module can undergo between calls, and what is drawn in the text of a change."""

from __future__ import annotations

import random
import re

_NUMBERS = ("0.5", "2.0", "-1.5", "3", "1", "1.0", "True", "0.25", "1.5", "2", "np.float32(0.75)", "-2")
_OF_FOUR = ("torch.full((4,), 2.)", "torch.ones(4)", "torch.arange(4.) + 1", "torch.full((4,), -1., dtype=torch.float64)")
_DRAWS = {
    "n": _NUMBERS,
    "i": ("0", "1", "2", "3"),
    "p": ("1", "2", "3"),
    "b": ("True", "False"),
    "s": ("'a'", "'bb'", "'ccc'", "'abc'"),
    "t": (*_OF_FOUR, "torch.ones(1)"),
    "d": _OF_FOUR,  # the `data` of a parameter: of other sizes, eager's gradient still has those of before
}

GENERAL = (
    "net.eval()",
    "net.train()",
    "net.zero_grad()",
    "net.requires_grad_(<b>)",
    "net.lin.weight.data.mul_(-0.5)",
    "net.lin.weight.requires_grad_(<b>)",
    "net.lin.bias.requires_grad_(<b>)",
    "net.lin.bias = None",
    "net.lin = nn.Linear(4, 4)",
    "net.lin.weight = nn.Parameter(torch.full((4, 4), 0.1))",
    "net.lin.weight.data = torch.full((4, 4), 0.2)",
    "net.load_state_dict({k: v * 0.5 if v.is_floating_point() else v for k, v in net.state_dict().items()})",
    "for p in net.parameters(): p.data.add_(0.1)",
    "net.lin.register_forward_hook(lambda m, a, r: r * 2)",
    "net.lin._forward_hooks.clear()",
    "net.lin._forward_pre_hooks.clear()",
    "net.lin.register_forward_hook(lambda m, a, r: setattr(m, 'last', r.detach()))",
    "net.lin.register_forward_hook(lambda m, a, r: setattr(m, 'calls', getattr(m, 'calls', 0) + 1))",
    "net.lin.register_forward_hook(lambda m, a, r, kept=[]: kept.append(r.detach()) or r * len(kept))",
    "net.lin.register_forward_hook(lambda m, a, r: r.mul_(<n>), prepend=<b>)",
    "net.lin.register_forward_hook(lambda m, a, k, r: r + m.training, with_kwargs=True, always_call=<b>)",
    "net.lin.register_forward_hook(lambda m, a, r: r if r.sum() > 0 else -r)",
    "net.lin.register_forward_hook(lambda m, a, r: m.weight.mul_(0.5) and None if not torch.is_grad_enabled() else r * 2)",
    "net.lin.register_forward_pre_hook(lambda m, a, k: ((a[0] * getattr(m, 'extra', 1),), k), with_kwargs=True)",
    "net.lin.register_forward_pre_hook(lambda m, a: m.register_buffer('met', a[0].detach().sum()))",
    "world: torch.set_grad_enabled(<b>)",
    "net.unused = <n>",
    "net.lin.extra = <n>",
    "net.more = nn.Linear(4, 4)",
    "del net.more",
    "net.register_buffer('more_state', torch.ones(2))",
    "mod.UNUSED = <n>",
    "net.lin.forward = lambda x: x * <n>",
    "del net.lin.forward",
    "net.lin.__class__ = nn.Linear",
    "copied()",
    "pickled()",
    "net.double()",
    "net.float()",
    "net.lin.weight = net.lin.weight",
    "net.lin.weight.data = net.lin.weight.data.t()",
    "net.__class__.extra = <n>",
    "gc.collect()",
    "inner.__class__ = type('Net', (mod.Net,), {'other': 1})",
    "inner.__class__ = mod.Net",
    "world: torch.set_num_threads(1)",
    "torch.optim.SGD(net.parameters(), lr=0.1).step()",
    "torch.optim.Adam(net.parameters()).step()",
    "net.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)",
    "net.to(torch.float64)",
    "net.bfloat16()",
    "net.register_forward_hook(lambda m, a, r: None)",
    "net.register_forward_pre_hook(lambda m, a: None)",
    "net.lin.register_forward_pre_hook(lambda m, a: (a[0] * <n>,))",
    "net.lin.register_full_backward_hook(lambda m, i, o: (i[0] * 2,))",
    "net.lin.weight.register_hook(lambda g: g * <n>)",
    "net.lin = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))",
    "net.lin = nn.Sequential(nn.Linear(4, 4), nn.Tanh())",
    "net.lin = nn.utils.skip_init(nn.Linear, 4, 4).apply(lambda m: m.requires_grad_(False)); "
    "net.lin.weight.copy_(torch.arange(16.).view(4, 4) % 5); net.lin.bias.fill_(0)",
    "net.lin.weight.data[0] = <i>",
    "net.lin.weight.grad = None",
    "net.lin.bias = nn.Parameter(net.lin.weight.data[0])",
    "inner.forward = types.MethodType(type(inner).forward, inner)",
    "del inner.forward",
    "mod.Net.forward = (lambda old: lambda self, *a, **k: old(self, *a, **k))(mod.Net.forward)",
    "mod.Net.__call__ = lambda self, *a, **k: nn.Module.__call__(self, *a, **k)",
    "del mod.Net.__call__",
    "world: nn.Linear.forward = lambda self, x: F.linear(x, self.weight, self.bias) * 2",
    "world: nn.Linear.scale = 2",
    "world: torch.autograd.set_detect_anomaly(<b>)",
    "world: nn.modules.module.register_module_forward_hook(lambda m, a, r: None)",
    "world: nn.modules.module._global_forward_hooks.clear()",
    "torch.nn.utils.vector_to_parameters(torch.zeros(sum(p.numel() for p in net.parameters())), net.parameters())",
    "torch.nn.init.constant_(net.lin.weight, 0.5)",
    "net.lin.weight.set_(torch.full((4, 4), 0.3))",
    "net.lin.weight.data = net.lin.weight.data.clone(memory_format=torch.contiguous_format)",
    "net.share_memory()",
    "inner.lin.weight.__class__ = nn.Parameter",
    "net.load_state_dict(net.state_dict(), assign=True)",
)


def drawn(rng: random.Random, text: str) -> str:
    """The text with a value for each place that is to be drawn."""
    return re.sub(f"<([{''.join(_DRAWS)}])>", lambda found: rng.choice(_DRAWS[found[1]]), text)
