"""Modules that define more than a forward."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import nn


class Net(nn.Module):
    """Two layers and a buffer; the base of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("kept_out", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x * self.scale)))


class Special(Net):
    """Defines special methods that nn.Module does not have."""

    def __enter__(self) -> Special:
        self.inside = True
        return self

    def __exit__(self, *_: object) -> None:
        self.inside = False

    def __add__(self, other: Any) -> Any:
        return "add", other

    def __radd__(self, other: Any) -> Any:
        return "radd", other

    def __iadd__(self, other: Any) -> Special:
        self.added = other
        return self

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter((1, 2, 3))

    def __contains__(self, item: Any) -> bool:
        return item == 3

    def __getitem__(self, key: Any) -> Any:
        return "item", key

    def __matmul__(self, other: Any) -> Any:
        return "matmul", other

    def __float__(self) -> float:
        return 2.5

    def __index__(self) -> int:
        return 2

    def __lt__(self, other: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Net)

    def __hash__(self) -> int:
        return 5

    def __str__(self) -> str:
        return "special"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) * 2


class Overriding(Net):
    """Overrides what nn.Module has, some with other signatures."""

    def train(self, mode: Any = True, also: Any = None) -> Any:
        self.seen = mode, also
        return super().train(bool(mode))

    def eval(self) -> str:  # type: ignore[override]
        super().eval()
        return "evaluated"

    def apply(self, function: Any, extra: int = 1) -> Any:
        return function, extra

    def half(self) -> Any:
        return self.double()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        self.moved = args
        return super().to(*args, **kwargs)

    def parameters(self, recurse: bool = True) -> Any:
        return self.b.parameters(recurse)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self.b.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(False)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {f"z.{name}": value for name, value in super().state_dict(*args, **kwargs).items()}

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict({name[2:]: value for name, value in state.items()}, strict, assign)

    def get_extra_state(self) -> int:
        return 3

    def set_extra_state(self, state: int) -> None:
        self.extra = state

    def extra_repr(self) -> str:
        return "overriding"


class Attributes(Net):
    """Decides itself about its attributes."""

    limit = 3
    count = 0

    def __getattr__(self, name: str) -> Any:
        return name * 2 if name.startswith("magic") else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value + 1 if name == "raised" else value)

    def __delattr__(self, name: str) -> None:
        if name == "kept":
            raise KeyError(name)
        super().__delattr__(name)

    def __dir__(self) -> Any:
        return [*super().__dir__(), "magic_of_all"]

    @property
    def broken(self) -> Any:
        raise AttributeError("inner")

    @property
    def width(self) -> int:
        return self.a.weight.shape[0]

    @width.setter
    def width(self, value: int) -> None:
        self.asked = value

    @functools.cached_property
    def cached(self) -> object:
        return object()

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    def of_nothing(x: int) -> int:
        return x + 1

    def kinds(self) -> Any:
        return type(self).__name__, self.__class__ is Attributes, isinstance(self, Attributes), type(self).limit

    def counts(self) -> Any:
        type(self).count += 1
        return Attributes.count, self.kind_of(self), isinstance(Attributes(), type(self)), type(type(self)()) is Attributes

    @classmethod
    def kind_of(cls, other: Any) -> Any:
        cls.count -= 1
        return cls is Attributes, isinstance(other, cls)

    def private(self) -> int:
        self.__x = 4
        return self.__x

    def itself(self) -> Any:
        return self

    def others(self) -> Any:
        return [[*other(torch.ones(2, 4)).shape] for other in (type(self)(), self.__class__())]

    def again(self) -> Any:
        self.__init__()  # type: ignore[misc]
        return self

    def new_attributes(self) -> int:
        self.__dict__ = {**self.__dict__, "fresh": 1}
        return self.fresh


class Slotted(Net):
    """Keeps something outside of its attributes."""

    __slots__ = ("slot",)

    def __init__(self) -> None:
        super().__init__()
        self.slot = 3

    def put(self, value: int) -> Any:
        self.slot = value
        return self


class Mapping(nn.Module, dict):
    """Is a dict as well."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        dict.__init__(self, q=1)
        self.a = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x)


class Named(nn.Module):
    """Has attributes of the names that a wrapped module has for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self._runtime, self._options = nn.Linear(4, 2), 3, 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x) * self._runtime

    def of_module(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)


class Told(type):
    """Notes the classes that are made."""

    made: list[str] = []

    def __new__(cls, name: str, bases: Any, names: Any, **kwargs: Any) -> Any:
        Told.made.append(name)
        return super().__new__(cls, name, bases, names)


class WithMetaclass(Net, metaclass=Told):
    """Its metaclass wants to know of subclasses."""


class Registered(Net):
    """Its subclasses have to give a name."""

    def __init_subclass__(cls, *, key: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)


Item = TypeVar("Item")


class Abstract(Net, abc.ABC, Generic[Item]):
    """Of an abstract and generic class."""


@dataclasses.dataclass(eq=False)
class Data(nn.Module):
    """A dataclass."""

    width: int = 3

    def __post_init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.width


class Patched(Net):
    """Its instance has a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = functools.partial(Patched.other, self)

    def other(self, x: torch.Tensor, times: float = 2.0) -> torch.Tensor:
        return self.a(x) * times
