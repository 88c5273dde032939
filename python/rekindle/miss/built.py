"""Builds the graph of a traced call with its gradients, for the sizes that stay open."""

from __future__ import annotations

from dataclasses import dataclass, field

from rekindle import _native
from rekindle.errors import OF_TORCH, first_line
from rekindle.export.request import ExportRequest
from rekindle.export.torchscript import adapter
from rekindle.export.traced import Traced
from rekindle.miss.sized import Sized
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import Layout, layout_of
from rekindle.sizes.shapes import sizes_of


@dataclass(frozen=True)
class Built:
    """Holds a graph that can run, if nobody has seen yet whether it does what eager does."""

    traced: Traced  # the traced call
    sized: Sized  # the sizes that it is for
    model: bytes = field(repr=False)  # that of the traced graph, with the sizes that stay open
    joint: bytes = field(repr=False)  # what it became: the graph with its gradients, optimized

    @property
    def has_open_sizes(self) -> bool:
        """Tells whether results may have other sizes in other calls."""
        return bool(self.sized.left.shapes.symbols) or self.traced.sizes.sized_by_data

    @property
    def output_layouts(self) -> list[Layout]:
        """Describes how the results lie: not what is written to buffers and arguments, nor what nobody gets."""
        outputs, effects = self.traced.result.outputs, self.traced.effects
        results = len(outputs) - len(effects.writes) - effects.kept
        return [layout_of(output, self.has_open_sizes) for output in outputs[:results]]


def build(request: ExportRequest, traced: Traced, sized: Sized) -> Built:
    """Makes the graph of a call that can run. Raises Bypass where it needs what graphs do not have."""
    call = request.call
    needs = [call.grad and tensor.requires_grad for tensor in traced.inputs]
    model = adapter.with_shapes(traced.graph.model, sized.left.shapes)
    sizes = sized.left.shapes.bind(sizes_of(call.arguments)) or {}
    try:
        joint = _native.build_joint(
            model, needs, sizes, on_cpu=call.device.type == "cpu", eager_numerics=request.plan.eager_numerics
        )
        return Built(traced, sized, model, joint)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except OF_TORCH as error:  # no code of the user's runs here
        raise Bypass(Reason.EXPORT_FAILED, first_line(error)) from error
