"""Lists, for each part of the forward of a random model that returns scores beside a loss, ways to write it.

An entry is a pair: statements of `__init__`, and an expression or statements of the forward. A forward has `x` (floating
point), `t` (labels) and `u` (three numbers a label). It makes the features `h`, the scores `z`, of these `s` and labels `y` that
its loss takes, the loss, and a list `more` of further results. $C: classes; $K: the width of the features; $D: which dimension
of `s` is that of the classes; $N: their number; $O: arguments of the loss; $I: the label that it ignores. `P(...)` is a
parameter. The first entry of a table is the plainest: a failing program is made smaller towards it.
"""

from __future__ import annotations

Table = dict[str, tuple[str, str]]

_W, _WB = "self.w = P($C, $K)", "self.w = P($C, $K); self.b = P($C)"
_A, _AB = "self.a = P($K, $C)", "self.a = P($K, $C); self.b = P($C)"
_WV = "self.w = P($C, $K); self.v = P($C, 3); self.w.requires_grad_(False)"
_LORA = "self.w = P($C, $K); self.down = P(2, $K); self.up = P($C, 2); self.w.requires_grad_(False)"
_CUT = "self.w = P($C - 1, $K); self.v = P(1, $K)"

FEATURES: Table = {
    "body": ("self.body = nn.Linear($K, $K)", "torch.tanh(self.body(x))"),
    "x": ("", "x"),
    "later columns": ("", "x[..., 1:]"),
    "tokens": ("self.table = nn.Embedding($C, $K)", "self.table(t.clamp(min=0))"),
    "norm": ("self.norm = nn.LayerNorm($K)", "self.norm(x)"),
    "activation": ("self.body = nn.Sequential(nn.Linear($K, $K), nn.GELU())", "self.body(x)"),
    "reversed": ("self.body = nn.Linear($K, $K)", "self.body(x).flip(-1)"),
    "dropout": ("self.body = nn.Linear($K, $K)", "F.dropout(self.body(x), 0.25, self.training)"),
}
HEADS: Table = {
    "linear": ("self.head = nn.Linear($K, $C)", "self.head(h)"),
    "linear without bias": ("self.head = nn.Linear($K, $C, bias=False)", "self.head(h)"),
    "functional": (_WB, "F.linear(h, self.w, self.b)"),
    "functional without bias": (_W, "F.linear(h, self.w)"),
    "product": (_A, "h @ self.a"),
    "product and bias": (_AB, "h @ self.a + self.b"),
    "transposed": (_W, "h @ self.w.t()"),
    "transposed and bias": (_WB, "self.b + h @ self.w.t()"),
    "transposed and a number": (_W + "; self.b = P(1)", "h @ self.w.t() + self.b"),
    "transposed and a scalar": (_W + "; self.b = P()", "h @ self.w.t() + self.b"),
    "functional and a row": (_W + "; self.b = P(1, $C)", "F.linear(h, self.w) + self.b"),
    "functional transposed": (_AB, "F.linear(h, self.a.t(), self.b)"),
    "einsum": (_W, "torch.einsum('...k,ck->...c', h, self.w)"),
    "einsum transposed": (_A, "torch.einsum('...k,kc->...c', h, self.a)"),
    "addmm": (_AB, "torch.addmm(self.b, h.flatten(0, -2), self.a, beta=0.5, alpha=2).view(*h.shape[:-1], $C)"),
    "addmm transposed": (_WB, "torch.addmm(self.b, h.flatten(0, -2), self.w.t(), beta=-1).view(*h.shape[:-1], $C)"),
    "baddbmm": (_AB, "torch.baddbmm(self.b, h.reshape(1, -1, $K), self.a[None], alpha=0.5)[0].view(*h.shape[:-1], $C)"),
    "row by row": (_A, "(h[..., None, :] @ self.a)[..., 0, :]"),
    "column by column": (_W, "(self.w @ h.unsqueeze(-1)).squeeze(-1)"),
    "weight first": (_W, "(self.w @ h.mT).mT"),
    "convolution": ("self.head = nn.Conv1d($K, $C, 1)", "self.head(h.reshape(-1, $K, 1)).view(*h.shape[:-1], $C)"),
    "weight twice": (_W, "F.linear(h, self.w) + F.linear(torch.sin(h), self.w)"),
    "weight in a chain": (_W, "F.linear(F.linear(F.linear(h, self.w), self.w.t()), self.w)"),
    "tied to the bias": (_W, "F.linear(h, self.w, self.w[:, 0])"),
    "two weights": (_W + "; self.v = P($C, $K)", "F.linear(h, self.w) + F.linear(torch.sin(h), self.v)"),
    "frozen weight": (_WB + "; self.w.requires_grad_(False)", "F.linear(h, self.w, self.b)"),
    "frozen bias": (_WB + "; self.b.requires_grad_(False)", "F.linear(h, self.w, self.b)"),
    "frozen, beside data": (_WV, "F.linear(h, self.w) + F.linear(u, self.v)"),
    "frozen, beside a product with data": (_WV, "h @ self.w.t() + u @ self.v.t()"),
    "low rank": (_LORA, "F.linear(h, self.w) + F.linear(F.linear(h, self.down), self.up)"),
    "made weight": ("self.up = P($C, 2); self.down = P(2, $K)", "F.linear(h, self.up @ self.down)"),
    "cosine": (_W, "5 * F.linear(F.normalize(h, dim=-1), F.normalize(self.w, dim=-1))"),
    "weight of the features": (_W, "F.linear(h, self.w * h.mean())"),
    "weight of data": (_W, "F.linear(h, self.w + u.mean())"),
    "rows of a weight": ("self.w = P($C + 2, $K)", "F.linear(h, self.w[1:-1])"),
    "joined weight": (_CUT, "F.linear(h, torch.cat([self.w, self.v]))"),
    "joined scores": (_CUT, "torch.cat([F.linear(h, self.w), F.linear(h, self.v)], -1)"),
    "features without gradient": ("self.head = nn.Linear($K, $C)", "self.head(h.detach())"),
    "narrow": ("self.head = nn.Sequential(nn.Linear($K, 3), nn.ReLU(), nn.Linear(3, $C))", "self.head(h)"),
}
BIASES: Table = {
    "none": ("", "z"),
    "vector": ("self.c = P($C)", "z + self.c"),
    "vector twice": ("self.c = P($C)", "z + self.c + self.c.sin()"),
    "scalar": ("self.c = P()", "z + self.c"),
    "number": ("self.c = P(1)", "z - self.c"),
    "row": ("self.c = P(1, $C)", "z + self.c"),
    "column": ("self.c = P($C, 1)", "(z.transpose(-1, -2) + self.c).transpose(-1, -2)"),
    "of each row": ("self.c = P($K)", "z + (h @ self.c)[..., None]"),
    "factors": ("self.c = P($C)", "z * self.c"),
    "factor": ("self.c = P()", "z * self.c"),
    "buffer": ("self.register_buffer('c', torch.randn($C))", "z + self.c"),
    "frozen": ("self.c = P($C).requires_grad_(False)", "z + self.c"),
    "in place": ("self.c = P($C)", "z.add_(self.c)"),
    "in a view": ("self.c = P($C)", "(z.view(-1, $C) + self.c).view(z.shape)"),
    "in a view of halves": ("self.c = P($C // 2)", "(z.view(*z.shape[:-1], 2, $C // 2) + self.c).view(z.shape)"),
    "halves": ("self.c = P($C // 2)", "z + torch.cat([self.c, self.c])"),
    "expanded": ("self.c = P(1)", "z + self.c.expand($C)"),
    "half of it": ("self.c = P($C)", "torch.add(z, self.c, alpha=0.5)"),
}
CHANGES: Table = {
    name: ("self.scale = P()" if "scale" in text else "", text)
    for name, text in {
        "none": "z",
        "scaled": "0.5 * z",
        "divided": "z / 3",
        "divided in place": "z.div_(2.0)",
        "temperature": "z / self.scale.exp()",
        "soft cap": "5 * torch.tanh(z / 5)",
        "float": "z.float()",
        "double": "z.double()",
        "bfloat16": "z.bfloat16().to(z.dtype)",
        "clamped": "z.clamp(-1.5, 1.5)",
        "masked": "z.masked_fill(u[..., :1] > 1.5, -1e4)",
        "infinite": "z.masked_fill(u[..., :1] > 1.5, -torch.inf)",
        "negative": "-z",
        "cloned": "z.clone()",
        "contiguous": "z.contiguous()",
        "detached": "z.detach()",
        "centered": "z - z.mean(-1, keepdim=True)",
        "relu": "F.relu(z)",
        "relu in place": "F.relu_(z)",
        "dropout": "F.dropout(z, 0.3, self.training)",
        "log_softmax": "F.log_softmax(z, -1)",
    }.items()
}
# s and y, and how many classes `s` has.
LAYOUTS: dict[str, tuple[str, str, str]] = {
    "view": ("z.view(-1, $C)", "t.view(-1)", "$C"),
    "reshape": ("z.reshape(-1, z.size(-1))", "t.reshape(-1)", "$C"),
    "flatten": ("z.flatten(0, -2)", "t.flatten()", "$C"),
    "shifted": ("z[..., :-1, :].reshape(-1, $C)", "t[..., 1:].reshape(-1)", "$C"),
    "shifted and contiguous": ("z[..., :-1, :].contiguous().view(-1, $C)", "t[..., 1:].contiguous().view(-1)", "$C"),
    "padded labels": ("z.float().view(-1, $C)", "F.pad(t, (0, 1), value=$I)[..., 1:].reshape(-1)", "$C"),
    "classes second": ("z.movedim(-1, 1)", "t", "$C"),
    "turned": ("z.transpose(1, -1)", "t.transpose(1, -1) if t.dim() > 1 else t", "$C"),
    "one more dimension": ("z.view(-1, $C)[None].movedim(-1, 1)", "t.view(1, -1)", "$C"),
    "copy": ("z.view(-1, $C).clone()", "t.view(-1)", "$C"),
    "halves": ("z.view(-1, $C // 2)", "(t[..., None] + torch.arange(2)).reshape(-1).remainder($C // 2)", "($C // 2)"),
    "pairs": ("z.view(-1, 2)", "(t[..., None] + torch.arange($C // 2)).reshape(-1).remainder(2)", "2"),
    "single classes": ("z.view(-1, 1)", "(t[..., None] * torch.zeros($C, dtype=torch.long)).reshape(-1)", "1"),
    "joined rows": ("z.view(z.shape[0], -1)", "t.view(t.shape[0], -1)[:, 0]", "s.shape[1]"),
    "later rows": ("z[1:].reshape(-1, $C)", "t[1:].reshape(-1)", "$C"),
    "every second row": ("z.view(-1, $C)[::2]", "t.view(-1)[::2]", "$C"),
    "first of each": ("z.view(z.shape[0], -1, $C)[:, 0]", "t.view(t.shape[0], -1)[:, 0]", "$C"),
    "one row": ("z.view(-1, $C)[0]", "t.view(-1)[0]", "$C"),
    "transposed twice": ("z.view(-1, $C).t().t()", "t.view(-1)", "$C"),
    "columns first": ("z.transpose(0, -2).reshape(-1, $C)", "t.transpose(0, -1).reshape(-1)", "$C"),
    "fewer classes": ("z[..., :$C - 1].reshape(-1, $C - 1)", "t.view(-1).clamp(max=$C - 2)", "($C - 1)"),
}
