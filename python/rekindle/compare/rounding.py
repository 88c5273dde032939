"""Limits how far a result may be from eager's: no farther from the exact one than twice what eager's rounding explains.

`Noise` lets eager round otherwise, at little more than eager's cost: what then changes as much as ours differs needs no other
proof. `Exact` runs beside eager: each operation on floating-point tensors is done once more in double precision, on what the
operations before it gave there. What is discrete stays eager's: integers, masks, random numbers, steps such as `floor`. Results
in double are kept by memory, while that is alive, so that views, writes in place and what autograd has saved find theirs.

An example, with `x = torch.randn(10_000)`: `judge(lambda: [x.sum()])[0]` admits `x.flip(0).sum()`, not `x.sum() + 0.1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map

from rekindle import _native
from rekindle.compare.distance import Distance
from rekindle.compare.rounding_operators import (
    STEPS,
    each_read,
    in_parts,
    is_view,
    is_writable,
    makes_new_numbers,
    rounds_like,
    sums,
    written_copied,
)
from rekindle.errors import ran_out_of_memory
from rekindle.process.dispatch_mode import DispatchMode
from rekindle.results.layouts import copied

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_NOISY = (torch.float64, *_FLOATS, torch.complex64, torch.complex128)


_PERIOD = 65_537  # of the noise; a prime, so that rows get other parts of it
_SMALL = 8
_FORGOTTEN = 1 << 26  # bytes: what freed memory held in double stays for so many more
_SAMPLES = 3  # of eager's rounding errors
_WIDER = 2.0  # times eager's error, or a sample's
_LAST_PLACES = 2.0  # where eager is nearly exact


class _Factors:
    """Makes numbers around 1, by which a tensor is multiplied in place: each as much as one rounding of its dtype, or two."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        self._noise = torch.rand(2 * _PERIOD, generator=generator, dtype=torch.float64, device="cpu").mul_(2).sub_(1)
        self._made: dict[tuple[torch.dtype, torch.dtype, torch.device], torch.Tensor] = {}
        self._start = 0

    def apply(self, tensor: torch.Tensor, of: torch.dtype) -> None:
        """Rounds `tensor`, which lies densely, as if of the dtype `of`. Small integers stay: they are counts and masks."""
        flat = tensor.as_strided((tensor.numel(),), (1,))
        if flat.is_complex():
            flat = torch.view_as_real(flat).view(-1)
        compute = torch.promote_types(flat.dtype, torch.float32)
        key = (of, compute, flat.device)
        if key not in self._made:
            self._made[key] = (1 + torch.finfo(of).eps * self._noise).to(compute).to(flat.device)
        self._start = (self._start + 7_919) % _PERIOD
        factors = self._made[key][self._start : self._start + _PERIOD]
        for part in _periods(flat):
            small = part.clamp(-_SMALL, _SMALL).round_()
            torch.where(small == part, part, (part * factors[: part.shape[-1]]).to(part.dtype), out=part)


def _periods(flat: torch.Tensor) -> Sequence[torch.Tensor]:
    """Returns parts of a tensor whose last dimension is a period or less: ones that caches hold, on an accelerator few."""
    if flat.device.type == "cpu":
        return flat.split(_PERIOD)
    whole = flat.numel() // _PERIOD * _PERIOD
    return [part for part in (flat[:whole].view(-1, _PERIOD), flat[whole:]) if part.numel()]


class Noise(DispatchMode):
    """Lets each operation round at random, about as much as its dtype makes it: what it is given, if it sums, and its result.

    of: another dtype, which makes all of it round
    """

    def __init__(self, seed: int | _Factors, of: torch.dtype | None = None) -> None:
        super().__init__()
        self._factors = _Factors(seed) if isinstance(seed, int) else seed
        self._of = of

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_view(function) or not makes_new_numbers(function, args):
            return function(*args, **kwargs)
        with torch.no_grad():
            if (parts := in_parts(function, args)) is not None:
                with self:
                    return parts(*args, **kwargs)
            if sums(function):
                args = tuple(each_read(function, args, lambda value: self._rounded(function, value)))
            result = function(*args, **kwargs)
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor) and tensor.dtype in _NOISY and is_writable(tensor):
                    self._factors.apply(tensor, self._of or tensor.dtype)
        return result

    def _rounded(self, function: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in _NOISY or not is_writable(value):
            return value
        copied = value.clone(memory_format=torch.preserve_format)
        self._factors.apply(copied, self._of or rounds_like(function, copied))
        return copied


class Exact(DispatchMode):
    """Computes each operation on real numbers once more in double precision.

    seed: lets each operation round at random instead, as `Noise` does, but what is discrete stays eager's
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._factors = None if seed is None else _Factors(seed)
        self._memories: dict[int, tuple[StorageWeakRef, torch.Tensor]] = {}  # address -> (memory, all of it in double)
        self._new = 0  # bytes in double that came since those of freed memory were last let go

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the tensor in double; of one that nothing has computed here, its own numbers. Shares memory as tensors do."""
        if tensor._is_zerotensor():  # it has no memory
            return torch.zeros(tensor.shape, dtype=torch.float64, device=tensor.device)
        memory = tensor.untyped_storage()
        count = memory.nbytes() // tensor.element_size()
        if not tensor.is_floating_point() or count == 0:
            return tensor
        known = self._memories.get(memory.data_ptr())
        if known is None or known[0].expired():  # or what is there now is other memory
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(memory, 0, (count,), (1,))
            known = StorageWeakRef(memory), whole.to(torch.float64, copy=True)
            self._add(memory.data_ptr(), *known)
        whole = known[1]
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_view(function):
            return function(*args, **kwargs)
        with torch.no_grad():
            rounds = self._factors is not None and makes_new_numbers(function, args)
            exact_args, exact_kwargs = tree_map(self._in_double, written_copied(function, args, kwargs))
            parts = in_parts(function, args) if rounds else None
            if rounds and parts is None and sums(function):
                pairs = zip(tree_leaves(exact_args), tree_leaves(args), strict=True)
                dtypes = {id(exact): rounds_like(function, x) for exact, x in pairs if _is_real(x)}
                exact_args = tuple(each_read(function, exact_args, lambda x: self._rounded(x, dtypes.get(id(x)))))
            result = function(*args, **kwargs)
            results = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
            if torch.Tag.nondeterministic_seeded in function.tags or function._schema.name in STEPS:
                self._take(results, results, rounds)
                return result
            try:
                exact = function(*exact_args, **exact_kwargs) if parts is None else self._by(parts, exact_args, args[0].dtype)
            except RuntimeError as error:  # of what does not take doubles
                if ran_out_of_memory(error):
                    raise
                exact = result
            self._take(results, [value for value in tree_leaves(exact) if isinstance(value, torch.Tensor)], rounds)
        return result

    def _add(self, address: int, memory: StorageWeakRef, exact: torch.Tensor) -> None:
        self._new += exact.nbytes
        if self._new >= _FORGOTTEN:
            self._memories = {at: known for at, known in self._memories.items() if not known[0].expired()}
            self._new = 0
        self._memories[address] = memory, exact

    def _by(self, parts: Callable[..., torch.Tensor], exact_args: Any, dtype: torch.dtype) -> torch.Tensor:
        assert self._factors is not None
        with Noise(self._factors, dtype):
            return parts(*exact_args)

    def _in_double(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        return torch.float64 if isinstance(value, torch.dtype) and value in _FLOATS else value

    def _rounded(self, exact: Any, dtype: torch.dtype | None) -> Any:
        factors = self._factors
        assert factors is not None
        if dtype is None or exact.numel() == 0:
            return exact
        # As they lie: a kernel that reads numbers which lie otherwise does not round, it computes something else.
        return copied(exact, lambda numbers: factors.apply(numbers, dtype))

    def _take(self, results: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], rounds: bool) -> None:
        for result, value in zip(results, exact, strict=True):
            is_expanded = any(s == 0 and n > 1 for s, n in zip(result.stride(), result.shape, strict=True))
            if not result.is_floating_point() or result.numel() == 0 or is_expanded or result._is_zerotensor():
                continue
            mine = self.of(result)
            if value.data_ptr() != mine.data_ptr():
                mine.copy_(value)
            if rounds:
                inexact = mine.to(result.dtype).double() != mine if result.dtype in _FLOATS else torch.ones_like(mine).bool()
                mine.copy_(torch.where(inexact, self._rounded(mine, result.dtype), mine))


@dataclass
class Judged:
    """Holds what other ways to compute a result of eager are judged by."""

    exact: torch.Tensor  # in double
    samples: list[Distance]  # distances from it that rounding can cause, eager's among them

    def admits(self, result: torch.Tensor) -> bool:
        """Tells whether rounding explains what another way to compute it gives."""
        if not result.is_floating_point() or result.shape != self.exact.shape:
            return False
        found = _from(self.exact, result)
        places = _LAST_PLACES * torch.finfo(result.dtype).eps
        return found.is_like and found.is_within(self.samples, _WIDER, (places, places))


def judgements(run: Callable[[], Sequence[torch.Tensor | None]]) -> Iterator[list[Judged | None]]:
    """Yields what to judge each result by, again with every sample of eager's rounding: what is admitted once stays so.

    run: computes results in eager, each time the same from the same random state

    None is for results that are not real numbers. The list is the same one each time.
    """
    with Exact() as exact:
        found = [(x.detach(), exact.of(x.detach()).clone()) if _is_real(x) else None for x in run()]
    judged = [None if pair is None else _judged(*pair) for pair in found]
    yield judged
    for seed in range(_SAMPLES):
        with Exact(seed) as sampling:
            sampled = [sampling.of(x.detach()).clone() if _is_real(x) else None for x in run()]
        for one, sample in zip(judged, sampled, strict=True):
            if one is not None and sample is not None and sample.shape == one.exact.shape:
                one.samples.append(_from(one.exact, sample))
        yield judged


def judge(run: Callable[[], Sequence[torch.Tensor | None]]) -> list[Judged | None]:
    """Returns the last of the judgements on what `run` computes."""
    *_, judged = judgements(run)
    return judged


def noisy(run: Callable[[], Sequence[torch.Tensor | None]]) -> Iterator[list[torch.Tensor | None]]:
    """Yields what `run` computes with other rounding errors, some times over; no more once it refuses such numbers."""
    for seed in range(_SAMPLES):
        try:
            with Noise(seed):
                found = [None if x is None else x.detach() for x in run()]
        except Exception as error:  # of the user's forward, which may check what it computes
            if ran_out_of_memory(error):
                raise
            _native.log_debug(f"rounding could not be sampled: {type(error).__name__}: {error}")
            return
        yield found


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _judged(eager: torch.Tensor, exact: torch.Tensor) -> Judged:
    finite = eager.isfinite() & exact.isfinite()
    exact = torch.where(finite, exact, eager.double())  # what overflows in eager does so in another way, too
    return Judged(exact, [_from(exact, eager)])


def _from(exact: torch.Tensor, result: torch.Tensor) -> Distance:
    return replace(Distance.between(result.detach().double(), exact), dtype=result.dtype)
