"""Code of real users that is full of autograd Functions, in eager and from graphs; prints what differs as a JSON object.

    python function_users.py cold | warm [rank]

With a rank: column- and row-parallel layers on two ranks; the environment says where they meet. See test_python_op_users.py.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import rekindle
import torch
import torch.distributed as dist
from seeded import seeded
from torch import nn
from torch.autograd import Function

torch.set_num_threads(1)


class CopyToParallel(Function):
    """The identity; its gradient is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class ReduceFromParallel(Function):
    """The sum over the ranks, in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.mark_dirty(x)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


class GatherFromParallel(Function):
    """The parts of all ranks side by side."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.rank, ctx.width = dist.get_rank(group), x.shape[-1]
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient[..., ctx.rank * ctx.width : (ctx.rank + 1) * ctx.width].contiguous(), None


class ParallelBlock(nn.Module):
    """A column-parallel layer, a row-parallel one, and one whose parts are gathered, as in Megatron-LM."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.columns, self.rows, self.part = nn.Linear(8, 4), nn.Linear(4, 8, bias=False), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.columns(CopyToParallel.apply(x, self.group)))
        y = ReduceFromParallel.apply(self.rows(y), self.group)
        return GatherFromParallel.apply(self.part(CopyToParallel.apply(y, self.group)), self.group)


def parallel() -> tuple[nn.Module, Callable[[Any, int], torch.Tensor]]:
    torch.manual_seed(dist.get_rank())
    module = ParallelBlock(dist.group.WORLD)
    return module, lambda model, step: model(torch.randn(5, 8, generator=seeded(step))).square().mean()


def _tokens(step: int) -> torch.Tensor:
    return torch.randint(0, 64, (2, 16), generator=seeded(step))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=2, max_position_embeddings=64, use_cache=False, **sizes))


def _loss(model: Any, step: int) -> torch.Tensor:
    return model(input_ids=_tokens(step), labels=_tokens(step)).loss


def checkpointed(reentrant: bool) -> tuple[nn.Module, Callable[[Any, int], torch.Tensor]]:
    model = _llama().train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    return model, _loss


def quantized() -> tuple[nn.Module, Callable[[Any, int], torch.Tensor]]:
    """A Llama whose layers have 4-bit weights with statistics that are quantized in turn, and LoRA adapters."""
    import bitsandbytes
    from peft import LoraConfig, get_peft_model

    def quantize(module: nn.Module) -> None:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name != "lm_head":
                layer = bitsandbytes.nn.Linear4bit(
                    child.in_features, child.out_features, bias=False, compute_dtype=torch.float32, quant_type="nf4"
                )
                layer.weight = bitsandbytes.nn.Params4bit(
                    child.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True
                )
                setattr(module, name, layer.to("cpu"))
            else:
                quantize(child)

    model = _llama()
    quantize(model)
    assert model.model.layers[0].self_attn.q_proj.weight.quant_state.nested
    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)), _loss


USERS: dict[str, Callable[[], tuple[nn.Module, Callable[[Any, int], torch.Tensor]]]] = {
    "checkpointed, re-entrant": lambda: checkpointed(True),
    "checkpointed, not re-entrant": lambda: checkpointed(False),
    "quantized": quantized,
}


def train(model: Any, module: nn.Module, loss_of: Callable[[Any, int], torch.Tensor]) -> list[Any]:
    """Losses and gradients of three steps, without updates."""
    found: list[Any] = []
    for step in range(3):
        loss = loss_of(model, step)
        loss.backward()
        found.append((loss.detach(), {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}))
        module.zero_grad()
    return found


def check(make: Callable[[], Any], warm: bool) -> None:
    module, loss_of = make()
    expected = train(module, module, loss_of)
    model = rekindle.Module(module, rekindle.Options(fallback="error", log="error"))
    found = train(model, module, loss_of)
    for (loss, gradients), (theirs, their_gradients) in zip(found, expected, strict=True):
        torch.testing.assert_close(loss, theirs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradients, their_gradients, rtol=1e-4, atol=1e-5)
    status = rekindle.status(model)
    assert status.eager_calls == 0, status
    alone = not dist.is_initialized()  # else one rank reads, or exports, for both
    assert status.source == ("local" if warm else "export") or (status.source == "remote" and not alone), status


def main() -> None:
    users = USERS
    if len(sys.argv) > 2:
        dist.init_process_group("gloo", rank=int(sys.argv[2]), world_size=2)
        users = {"parallel": parallel}
    found = {}
    for name, make in users.items():
        try:
            check(make, sys.argv[1] == "warm")
            found[name] = ""
        except ImportError as error:
            found[name] = f"not installed: {error}"
        except Exception:
            found[name] = traceback.format_exc(limit=-6)
    rekindle.lookup.store.flush()
    print(json.dumps(found), flush=True)
    if len(sys.argv) > 2:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
