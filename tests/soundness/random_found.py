"""Programs that failed once, made small, by what was wrong."""

from __future__ import annotations

from random_program import Piece, Program, Step

_CALL = Step("call", 0, "x(3, 4)")


def _program(construct: str, *steps: Step | str) -> Program:
    """A call, then the steps: changes, after each of which there is a call like the first, and calls."""
    found = [_CALL]
    for step in steps:
        found += [step] if isinstance(step, Step) else [Step(step, 1), _CALL]
    return Program((Piece(construct, 1),) if construct else (), tuple(found))


FOUND: dict[str, Program] = {
    "a class's attribute, set on its object": _program("attribute of a plain object's class", "net.c1.scale = 2.0"),
    "the same on an object in an object": _program("nested objects", "net.c1.inner.scale = 2.0", "del net.c1.inner.scale"),
    "the same on a global object": _program("global object", "mod.CONFIG1.scale = 2.0"),
    "the same of a method's object": _program("bound method", "net.s1.k = 2.0"),
    "what a property asks its object's dict for": _program("property of an object", "net.c1.more = 2"),
    "what a data descriptor asks the module's dict for": _program("data descriptor", "net.d1 = 2.0"),
    "an attribute that was absent": _program("except AttributeError", "net.c1.e = 2"),
    "an attribute of a class between dict and object": _program("dict of a class", "mod.Table1.other = 3", "net.c1.other = 1.5"),
    "an attribute of a list": _program("list of a class", "net.c1.scale = 2.0"),
    "an attribute of a tuple": _program("subclass of a named tuple", "net.t1.more = 1.5"),
    "an attribute of a number": _program("subclass of a number", "net.n1.bias = 1.5"),
    "the name of a class": _program("class of the module", "mod.Net.__name__ = 'a'", "mod.Net.__qualname__ = 'b'"),
    "less state at another size": _program("", Step("net.lin.bias = None"), Step("call", 0, "x(2, 4)")),
    "a cache that was cleared": _program("cached function", "mod.f1.cache_clear()", "mod.K1 = [-2]"),
    "an answer of a cache, edited": _program("cached tensor", "mod.f1(4).fill_(3)"),
    "a cache of a method": _program("cache of a method", "net.k1 = 2.0", "mod.Net.f1.cache_clear()"),
    "an effect in a cached function": _program("cached function with an effect", _CALL, "mod.f1.cache_clear()"),
    "random numbers in a cache": _program("cached random numbers", _CALL, "mod.f1.cache_clear()"),
    "what an autograd Function logs": _program("function that logs", _CALL),
    "the end of an object": _program("object that ends", _CALL),
    "a cached tensor of inference mode": _program(
        "cached tensor", Step("mod.f1.cache_clear()", 1), Step("call_in_inference_mode", 0, "x(3, 4)"), _CALL
    ),
    "running statistics that a backward reads": _program("BatchNorm", Step("call_and_write_state", 0, "x(3, 4)")),
    "two calls before the backwards": _program("counter buffer", Step("call_twice", 0, "x(3, 4)")),
}
