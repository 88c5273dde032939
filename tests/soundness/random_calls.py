"""The ways in which a random program calls its module, and differentiates what it gets."""

from __future__ import annotations

import io
import threading
import types
from collections.abc import Iterator
from typing import Any

import rekindle
import torch
from torch.utils._pytree import tree_leaves

CALLS = (
    "call", "call_without_grad", "call_twice", "backward_each", "backward_again", "call_for_second_gradients",
    "call_with_autocast", "call_in_inference_mode", "call_functionally", "call_in_a_thread", "call_and_write_result",
    "call_and_write_state", "call_and_write_constants", "call_and_step", "call_for_gradients", "call_with_hooks", "call_forward",
)  # fmt: skip


class Calls:
    """Calls a module in all ways of CALLS.

    model: what is called
    module: where its class is defined
    seen: what a step shows besides the state
    step: its number, which seeds what is drawn
    """

    def __init__(self, model: torch.nn.Module, module: types.ModuleType) -> None:
        self.model, self.module = model, module
        self.step = 0
        self.seen: dict[str, Any] = {}
        self._kept: list[Any] = []  # what earlier calls were given and returned, so that no address is used again
        self._last: torch.Tensor | None = None

    def last(self) -> torch.Tensor | None:
        """A result of the call before, without its history, if there was any."""
        return None if self._last is None else self._last.detach()

    def again(self) -> torch.Tensor | None:
        """The same with its history."""
        return self._last

    def call(self, *args: Any, **kwargs: Any) -> None:
        """A call and its backward."""
        results = self._results(args, kwargs)
        self._backward(results)

    def call_without_grad(self, *args: Any, **kwargs: Any) -> None:
        """A call without gradients."""
        with torch.no_grad():
            self._results(args, kwargs)

    def call_twice(self, *args: Any, **kwargs: Any) -> None:
        """Two calls, then their backwards, the last first."""
        results = [self._results(args, kwargs, "first "), self._results(args, kwargs)]
        self._backward(results.pop())
        self._backward(results.pop())

    def backward_each(self, *args: Any, **kwargs: Any) -> None:
        """A backward for each result."""
        results = self._results(args, kwargs)
        for result in tree_leaves(results):
            self._backward(result)

    def backward_again(self, *args: Any, **kwargs: Any) -> None:
        """Two backwards through the same call."""
        results = self._results(args, kwargs)
        self._backward(results, retain_graph=True)
        self._backward(results)

    def call_for_second_gradients(self, *args: Any, **kwargs: Any) -> None:
        """Gradients of gradients."""
        results = self._results(args, kwargs)
        roots = _roots(results)
        wanted = [p for p in rekindle.unwrap(self.model).parameters() if p.requires_grad]
        if roots and wanted:
            # Weighed, as the sum of squares of what is normalized would have no gradient but rounding errors.
            sums = [(r * r * given).sum() for r, given in zip(roots, self._given(roots), strict=True)]
            found = torch.autograd.grad(sum(sums), wanted, create_graph=True, allow_unused=True)
            self.seen["first gradients"] = [None if g is None else g.detach().clone() for g in found]
            second = [g for g in found if g is not None and g.requires_grad]
            if second:
                sum((g * g).sum() for g in second).backward()

    def _results(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "") -> Any:
        self.seen |= {name + "arguments": (args, kwargs)}
        self._kept.append((args, kwargs))
        results = self.model(*args, **kwargs)
        self._kept.append(results)
        self._last = next((leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)), None)
        self.seen |= {name + "result": results}
        return results

    def _backward(self, results: Any, **options: Any) -> None:
        roots = _roots(results)
        if roots:
            try:
                torch.autograd.backward(roots, self._given(roots), **options)
            except Exception:
                self._drop_gradients()
                self._drop_lines()
                raise

    def _drop_lines(self) -> None:
        """Forgets what Functions have logged: eager's backward may reach some before it raises."""
        for value in vars(self.module).values():
            if isinstance(value, io.StringIO):
                value.seek(0)
                value.truncate()

    def _drop_gradients(self) -> None:
        """After a backward that raised eager's hold the part of the sum that was done by then, a graph's hold all or nothing."""
        reached = [tensor for tensor in tree_leaves(self._kept) if isinstance(tensor, torch.Tensor) and _is_leaf(tensor)]
        for tensor in [*rekindle.unwrap(self.model).parameters(), *reached]:
            tensor.grad = None

    def _given(self, roots: list[torch.Tensor]) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(self.step + 1)
        return [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in roots]

    def call_with_autocast(self, *args: Any, **kwargs: Any) -> None:
        """A call under autocast."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = self._results(args, kwargs)
        self._backward(results)

    def call_in_inference_mode(self, *args: Any, **kwargs: Any) -> None:
        """A call whose results have no history at all."""
        with torch.inference_mode():
            self._results(args, kwargs)

    def call_functionally(self, *args: Any, **kwargs: Any) -> None:
        """A call with other tensors in the place of the parameters."""
        state = {name: tensor.detach() * 0.5 for name, tensor in self.model.named_parameters()}
        for tensor in state.values():
            tensor.requires_grad_()
        results = torch.func.functional_call(self.model, state, args, kwargs)
        self.seen |= {"result": results}
        self._backward(results)
        self.seen |= {"gradients": [tensor.grad for tensor in state.values()]}

    def call_in_a_thread(self, *args: Any, **kwargs: Any) -> None:
        """A call and its backward in another thread."""
        failed: list[Exception] = []

        def run() -> None:
            try:
                self.call(*args, **kwargs)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def call_and_write_result(self, *args: Any, **kwargs: Any) -> None:
        """A write to a result before its backward."""
        results = self._results(args, kwargs)
        for root in _roots(results)[:1]:
            root.mul_(2)
        self._backward(results)

    def call_and_write_state(self, *args: Any, **kwargs: Any) -> None:
        """Writes to all that the module holds before the backward."""
        results = self._results(args, kwargs)
        model = rekindle.unwrap(self.model)
        with torch.no_grad():
            # Of integers the graph has saved what they are as numbers; through `data` eager sees no write at all.
            aliased = {id(tensor) for tensor in model.parameters() if _is_held_besides(model, tensor)}
            for tensor in [*model.buffers(), *model.parameters()]:
                if tensor.is_floating_point() and id(tensor) not in aliased:
                    tensor.add_(1)
        self._backward(results)

    def call_and_write_constants(self, *args: Any, **kwargs: Any) -> None:
        """Writes to the plain tensors that the module leads to before the backward."""
        results = self._results(args, kwargs)
        model = rekindle.unwrap(self.model)
        state = {tensor.untyped_storage().data_ptr() for tensor in (*model.buffers(), *model.parameters())}
        with torch.no_grad():
            for tensor in _plain_tensors([*map(vars, model.modules()), vars(self.module)], set()):
                if tensor.is_floating_point() and not tensor.is_inference() and tensor.untyped_storage().data_ptr() not in state:
                    tensor.add_(0.5)
        self._backward(results)

    def call_and_step(self, *args: Any, **kwargs: Any) -> None:
        """A step of an optimizer."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        optimizer.zero_grad()
        self._backward(self._results(args, kwargs))
        optimizer.step()

    def call_for_gradients(self, *args: Any, **kwargs: Any) -> None:
        """Gradients of the first result alone, by one parameter."""
        roots = _roots(self._results(args, kwargs))
        wanted = [p for p in rekindle.unwrap(self.model).parameters() if p.requires_grad]
        if roots and wanted:
            self.seen["gradient"] = torch.autograd.grad(roots[0], wanted[:1], self._given(roots)[0], allow_unused=True)

    def call_with_hooks(self, *args: Any, **kwargs: Any) -> None:
        """Hooks of a result, and its gradient."""
        results = self._results(args, kwargs)
        for root in _roots(results):
            root.retain_grad()
            root.register_hook(lambda gradient: gradient * 2)
        self._backward(results)
        self.seen["kept"] = [root.grad for root in _roots(results)]

    def call_forward(self, *args: Any, **kwargs: Any) -> None:
        """A call past the hooks."""
        results = self.model.forward(*args, **kwargs)
        self.seen |= {"result": results}
        self._backward(results)


def _is_held_besides(model: torch.nn.Module, tensor: torch.Tensor) -> bool:
    """Tells whether some module has a plain attribute that shares the tensor's memory."""
    memory = tensor.untyped_storage().data_ptr()
    values = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    return any(value.untyped_storage().data_ptr() == memory for value in values)


def _plain_tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """The tensors in a value's items and attributes, each once; of modules, functions and classes nothing."""
    if id(value) in seen or isinstance(value, (torch.nn.Module, type, types.ModuleType, types.FunctionType)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for item in (*items, *vars(value).values()) if hasattr(value, "__dict__") else items:
        yield from _plain_tensors(item, seen)


def _is_leaf(tensor: torch.Tensor) -> bool:
    try:
        return tensor.is_leaf
    except RuntimeError:  # a view, made without gradients, of what was written with them
        return False


def _roots(results: Any) -> list[torch.Tensor]:
    return [r for r in tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad and r.is_floating_point()]
