"""What a construct is: one way in which a forward comes by a value, and what may be done to it between calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Construct:
    """A few lines of a program. `$` in a text becomes a number that no other construct of the program has.

    use: statements of the forward, which has `x`, `y` (floating point, the rows of x by 4) and `out` (a dict of further
    results). top: what stands above the classes; members, init: in the class's body, at the end of its `__init__`; base,
    meta: in the bodies of its base class and of its metaclass. parameters: of the forward, each with a default; arguments:
    what a call may give for them. changes: statements between calls, about `net`, the module, and `mod`, where it is
    defined; one that begins with "world:" is about what all modules of the process share. weight: how often it is drawn,
    small for what a graph cannot hold.
    Drawn for each place: <n> a number, <i> a small one, <p> one from 1 to 3, <b> a truth, <s> a text, <t> a tensor.
    """

    name: str
    use: str
    init: str = ""
    top: str = ""
    members: str = ""
    base: str = ""
    meta: str = ""
    parameters: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    weight: float = 1.0
