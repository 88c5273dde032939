"""Writes the parts of random autograd Functions, and of the module that applies them, down as Python."""

from __future__ import annotations

import textwrap
from typing import Any

import functions_arguments as arguments
import functions_bodies as bodies
import functions_places as places
from functions_frame import NET

# Of each part its ways, and how often it is another than the plainest.
FUNCTION_PARTS: dict[str, tuple[dict[str, Any], float]] = {
    "style": (bodies.STYLES, 0.35),
    "base": (bodies.BASES, 0.15),
    "declaration": (bodies.DECLARATIONS, 0.12),
    "value": (bodies.VALUES, 0.8),
    "second": (arguments.SECONDS, 0.6),
    "extra": (arguments.EXTRAS, 0.5),
    "write": (bodies.WRITES, 0.12),
    "result": (bodies.FIRST, 0.35),
    "further": (bodies.FURTHER, 0.5),
    "last": (bodies.FURTHER, 0.2),
    "branch": (bodies.BRANCHES, 0.4),
    "saved": (bodies.SAVED, 0.75),
    "context": (bodies.CONTEXTS, 0.3),
    "forward log": (bodies.FORWARD_LOGS, 0.4),
    "backward log": (bodies.BACKWARD_LOGS, 0.4),
    "derivative": (bodies.DERIVATIVES, 0.8),
    "turn": (bodies.TURNS, 0.4),
    "returned": (bodies.RETURNED, 0.4),
    "decorators": (bodies.DECORATORS, 0.2),
    "input": (arguments.INPUTS, 0.25),
    "place": (places.PLACES, 0.25),
    "use": (places.USES, 0.5),
    "between": (places.BETWEEN, 0.5),
}
NET_PARTS: dict[str, tuple[dict[str, Any], float]] = {
    "start": (places.STARTS, 0.3),
    "loss": (places.LOSSES, 0.6),
    "results": (places.RESULTS, 0.5),
}
Parts = dict[str, str]


def _ways(parts: Parts) -> dict[str, Any]:
    return {part: table[parts[part]] for part, (table, _) in FUNCTION_PARTS.items()}


def _results(way: dict[str, Any]) -> list[bodies.Result]:
    first = bodies.FIRST["the input"] if way["write"] else way["result"]
    return [first, *(way[part] for part in ("further", "last") if way[part].text)]


def clashes(parts: Parts) -> bool:
    """Tells whether PyTorch refuses a Function of such parts, or what the forward does with its results, most often."""
    way = _ways(parts)
    writes_after = "_(" in way["between"] and "self." not in way["between"]
    shares = [result.shares for result in _results(way)] + ["o0 = a" in way["branch"]]
    if way["write"]:
        moves = parts["input"] in ("so far", "scaled", "other strides", "reversed") and parts["place"] in ("plain", "loop")
        return writes_after or any(shares[1:]) or not moves or "o0" in way["saved"][0]
    saves_shared = "save" in way["saved"][0] and any(shares) and not way["style"]
    return saves_shared or (writes_after and ("save" in way["saved"][0] or any(shares)))


def _names(way: dict[str, Any]) -> list[str]:
    return ["a", *(["b"] if way["second"].argument else []), *(["e"] if way["extra"].argument else [])]


def _indented(lines: list[str], levels: int) -> str:
    return textwrap.indent("\n".join(line for line in lines if line), "    " * levels) + "\n"


def class_of(number: int, parts: Parts) -> str:
    """Returns the text of a Function's class."""
    way = _ways(parts)
    results, names = _results(way), _names(way)
    outputs = ", ".join(f"o{i}" for i in range(len(results)))
    gradients = [f"g{i}" for i in range(len(results))]
    on_forward, on_backward = _decorators(way)
    declared = way["declaration"] if way["write"] or "inplace_map" not in way["declaration"] else ""
    text = f"class F{number}({way['base'][0]}):\n" + _indented([way["base"][1], declared], 1) + "\n"
    forward, context = _forward(way, results), _context(way, results)
    if way["style"]:
        forward += context
    else:  # a forward without context does not ask it
        forward = [line for line in forward if "ctx" not in line]
    text += _method(on_forward, f"forward({way['style']}{', '.join(names)})", [*forward, f"return {outputs}"])
    if not way["style"]:
        given = [f"{', '.join(names)}{',' * (len(names) == 1)} = inputs", f"{outputs} = output"]
        text += _method("", "setup_context(ctx, inputs, output)", [*given, *context])
    text += _method(on_backward, f"backward(ctx, {', '.join(gradients)})", _backward(way, results, gradients))
    tensors = [f"o{i}" for i, result in enumerate(results) if i and result.is_tensor]
    words = {"N": f"F{number}", "T": "a, b" if "b" in names and way["second"].argument != "None" else "a"}
    words |= {"O": ", ".join(tensors), "none": ", ".join(["None"] * len(names))}
    return replaced(text, words) + "\n\n"


def _decorators(way: dict[str, Any]) -> tuple[str, str]:
    """Returns those of the forward and the backward; custom_fwd is for a forward with context."""
    forward, backward = way["decorators"]
    return (forward, backward) if way["style"] else ("", "" if forward else backward)


def _method(decorator: str, head: str, lines: list[str]) -> str:
    return _indented(["@staticmethod", decorator, f"def {head}:"], 1) + _indented(lines, 2) + "\n"


def replaced(text: str, words: dict[str, str]) -> str:
    """Replaces words that begin with a dollar sign, longer ones first."""
    for name in sorted(words, key=len, reverse=True):
        text = text.replace(f"${name}", words[name])
    return text


def _forward(way: dict[str, Any], results: list[bodies.Result]) -> list[str]:
    extra = way["extra"]
    lines = [way["forward log"], way["write"], f"t = {way['value']}", way["second"].forward]
    lines += [extra.forward, f"t = t * ({extra.factor})" if extra.factor else ""]
    lines += [f"o{i} = {result.text}" for i, result in enumerate(results)]
    if not (way["write"] and "o0 =" in way["branch"]):  # what is written must be returned
        lines.append(way["branch"])
    return lines


def _context(way: dict[str, Any], results: list[bodies.Result]) -> list[str]:
    marks = way["context"]
    if not any(result.is_tensor for result in results[1:]):
        marks = marks.replace("ctx.mark_non_differentiable($O)", "")
    lines = ["ctx.mark_dirty(a)" if way["write"] else "", way["saved"][0], marks.strip("; ")]
    lines.append("ctx.sizes = a.shape" if any("ctx.sizes" in result.gradient for result in results) else "")
    lines.append("ctx.e = e" if "ctx.e" in way["extra"].backward else "")
    return lines


def _backward(way: dict[str, Any], results: list[bodies.Result], gradients: list[str]) -> list[str]:
    pairs = [f"({g}, lambda g: {each.gradient})" for g, each in zip(gradients, results) if each.gradient]
    has_saved = bool(way["saved"][0])
    log = way["backward log"]
    lines = [f"gradients = {', '.join(gradients)}," if "gradients" in log else "", log, way["saved"][1]]
    lines += [f"g = total({', '.join(pairs)})", "if g is None: return $none"]
    lines.append(way["derivative"] if has_saved or " s" not in way["derivative"] else "")
    lines += [way["extra"].backward, way["turn"]]
    returned = [way["returned"] if has_saved or not way["returned"].startswith("s.") else "g"]
    returned += [way["second"].gradient] if way["second"].argument else []
    return [*lines, "return " + ", ".join([*returned, *(["None"] if way["extra"].argument else [])])]


def _call_of(number: int, parts: Parts) -> list[str]:
    """Returns the lines of the forward that apply a Function and go on with its results."""
    way = _ways(parts)
    results = _results(way)
    further = [each.argument for each in (way["second"], way["extra"]) if each.argument]
    rest = "".join(f", {each}" for each in further)
    words = {"L": ", ".join(f"y{i}" for i in range(len(results))), "C": f"F{number}.apply({way['input']}{rest})"}
    words |= {"F": f"F{number}", "A": way["input"], "R": rest}
    lines = ["self.auxiliary = h.detach() * 0.5" if "auxiliary" in way["extra"].factor else ""]
    lines += ["given = h" if "given" in way["between"] else "", *replaced(way["place"], words).split("\n")]
    for i, result in enumerate(results):
        use = replaced(result.use, {"h": "h", "o": f"y{i}"})
        lines += (replaced(way["use"], {"u": use, "y": f"y{i}"}) if i else f"h = {use}").split("\n")
    return [*lines, *way["between"].split("\n")]


def net_of(functions: tuple[Parts, ...], net: Parts) -> str:
    """Returns the text of the module that applies the Functions."""
    way = {part: table[net[part]] for part, (table, _) in NET_PARTS.items()}
    lines = [way["start"]]
    for number, parts in enumerate(functions):
        lines += _call_of(number, parts)
    return NET + _indented([*lines, f"loss = {way['loss']}", f"return {way['results']}"], 2)
