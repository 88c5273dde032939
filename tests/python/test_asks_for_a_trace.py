"""Forwards run from one graph though they ask whether they are traced or exported, hint at torch.compile, or keep answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_support import Twins
from rekindle.lookup.store import flush
from torch import nn

transformers = pytest.importorskip("transformers")


def _trained(twins: Twins, *inputs: dict[str, torch.Tensor]) -> None:
    for one in inputs:
        for model in (twins.eager, twins.module):
            model.zero_grad()

        def step(model: nn.Module, one: dict[str, torch.Tensor] = one) -> Any:
            found = model(**one).last_hidden_state
            found.square().mean().backward()
            return found

        theirs, ours = twins.both(step)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        gradients = [[parameter.grad for parameter in model.parameters()] for model in (twins.module, twins.eager)]
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


class Asking(nn.Module):
    """Leaves a factor out where it is exported as ONNX."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y if torch.onnx.is_in_onnx_export() else y * 3


def test_a_forward_that_asks_for_an_export_goes_eagers_way() -> None:
    for exports in (1, 0):  # the second finds the graph of the first
        twins = Twins(Asking(), fallback="error")
        twins.call(torch.randn(3, 4))
        assert twins.status.exports == exports
        flush()


def test_a_window_as_large_as_the_image_stays_what_it_is() -> None:
    # Traced, Swin's layers would put a tensor in the place of their window.
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=12, depths=[1, 1, 1], num_heads=[1, 2, 4], window_size=4, drop_path_rate=0.0
    )
    twins = Twins(transformers.SwinModel(config), fallback="error")
    _trained(twins, {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": torch.randn(3, 3, 32, 32)})
    assert twins.status.exports == 1


@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_one_graph_is_for_masks_of_ones_and_others(family: str) -> None:
    made = getattr(transformers, f"{family}Config")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
    model = getattr(transformers, f"{family}Model")(made(**sizes, **({"use_cache": False} if family == "Llama" else {})))
    twins = Twins(model.eval(), fallback="error")
    ones = torch.ones(2, 6, dtype=torch.long)
    padded = ones.tril(4).flip(1) if family == "Llama" else ones.tril(4)
    tokens = torch.arange(12).view(2, 6)
    _trained(twins, *({"input_ids": tokens, "attention_mask": mask} for mask in (ones, padded, ones)))
    assert twins.status.exports == 1


class _Hints(nn.Module):
    """Marks its result as torch._dynamo.mark_static_address does, which caches of transformers call for their states."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.layer, self.mark = nn.Linear(4, 4), mark

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        setattr(y, self.mark, "unguarded")
        return y


@pytest.mark.parametrize(("mark", "is_hint"), [("_dynamo_static_input_type", True), ("kind", False)])
def test_a_hint_for_torch_compile_is_left_out_and_no_other_attribute(mark: str, is_hint: bool) -> None:
    twins = Twins(_Hints(mark))
    for _ in range(2):
        theirs, ours = twins.both(lambda model: model(torch.ones(3, 4)))
        torch.testing.assert_close(ours, theirs)
        assert is_hint or vars(ours) == vars(theirs)
    assert twins.status.exports == int(is_hint)


def test_a_model_whose_cache_hints_at_torch_compile_has_one_graph() -> None:
    twins = Twins(
        transformers.MambaModel(transformers.MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=30, state_size=2))
    )
    tokens = torch.arange(12).view(2, 6)
    _trained(twins, {"input_ids": tokens}, {"input_ids": tokens.flip(1)})
    assert (twins.status.exports, twins.status.eager_calls) == (1, 0)


class _Placed(nn.Module):
    """Adds the positions of DETR, which a method keeps for the last shape that it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

        self.layer, self.places = nn.Conv2d(3, 8, 3, padding=1), DetrSinePositionEmbedding(4, normalize=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # float32[batch, 3, height, width]
        h = self.layer(x)
        return h + self.places(h.shape, h.device, h.dtype)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_method_of_transformers_that_keeps_its_answer_is_no_effect(is_kept: bool) -> None:
    twins = Twins(_Placed(), fallback="error")
    method = type(twins.module.places).build_sine_position_embedding
    dict(zip(method.__code__.co_freevars, method.__closure__, strict=True))["func_with_cache"].cell_contents.cache_clear()
    for size in (5, 5, 6, 5):
        x = torch.randn(2, 3, size, size)
        if is_kept:
            twins.eager(x)
        theirs, ours = twins.both(lambda model: model(x))  # noqa: B023
        torch.testing.assert_close(ours, theirs)
    assert twins.status.eager_calls == 0
