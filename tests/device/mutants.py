"""Breaks what tests without a GPU are there to protect, one place at a time, and asks that a test fails and says why.

scripts/mutants            all, a line each
scripts/mutants stream     those whose name has this word
"""

from __future__ import annotations

import sys

from mutant import Mutant, build, outcome

_EMULATED = "cuda_emulation_test"
_CALLS, _MEMORY = ("tests/device/test_calls.py",), ("tests/device/test_memory.py",)

MUTANTS = (
    Mutant(
        "a frame is used on a second stream without waiting for the first",
        "session/run/executor.cc",
        "  frame.enter_stream();\n",
        "",
        "race: ",
    ),
    Mutant(
        "a link of the backward's chain does not say where it runs",
        "session/autograd/backward_chain.cc",
        "next->add_input_metadata(link);",
        "next->add_input_metadata(torch::autograd::Node::undefined_input());",
        "kernels_on[2]",
    ),
    Mutant(
        "constants are left on the host",
        "session/plan/lower.cc",
        "slot.constant = slot.constant.to(request_.device);",
        "(void)slot;",
        "is on the host, the others on test:0",
    ),
    Mutant(
        "a lowering reads its constants where they lie",
        "session/lower/op.cc",
        "  if (!constants_[i].is_cpu()) constants_[i] = constants_[i].cpu();\n",
        "",
        "SIGSEGV",
    ),
    Mutant(
        "the arena is on the host",
        "device/arena_pool.cc",
        "allocate(bytes, device_)",
        "allocate(bytes, at::kCPU)",
        "on the host",
    ),
    Mutant(
        "two slots of the arena overlap",
        "session/plan/memory_planner.cc",
        "end = std::max(end, placed->offset + placed->bytes);",
        "end = std::max(end, placed->offset + placed->bytes / 2);",
        "FAILED",
    ),
    Mutant(
        "a frame counts as used before its memory is there",
        "session/run/frame.cc",
        "  frame->take_arena();",
        "  ++in_use_, high_water_ = std::max(high_water_, in_use_);\n  frame->take_arena(), --in_use_;",
        "stats().frames == 1",
    ),
    Mutant(
        "attention calls the CPU's own kernel",
        "session/ops/attention.cc",
        "    if (!args.in(0).is_cpu()) return attend(args, attention);\n",
        "",
        "is the CPU's own",
    ),
    Mutant(
        "memory that a second stream used goes back without a word to the allocator",
        "device/stream_order.cc",
        "    guard.recordDataPtrOnStream(memory.storage().data_ptr(), now);\n",
        "",
        "race: ",
    ),
    Mutant(
        "a frame goes on using the arena that it gave back",
        "session/run/frame.cc",
        "if (before == place_ && before != nullptr) return;",
        "if (before != nullptr) return;",
        "race: ",
    ),
    Mutant(
        "the pool counts memory that it did not get",
        "device/arena_pool.cc",
        "    used_bytes_ -= bytes;\n    throw;",
        "    throw;",
        "pool.idle_bytes() == 2048",
    ),
    Mutant(
        "an arena goes to another stream than that which used it last",
        "device/arena_pool.cc",
        " || !one->arena->order.is_of_current_stream(device_)",
        "",
        "const_data_ptr() == place",
    ),
    Mutant(
        "an entry holds the index of the device that made it",
        "python/rekindle/results/call_device.py",
        'return value if device.type == "cpu" else _renamed(value, {str(device): OF_CALL})',
        "return value",
        "test:0, in eager test:1",
        _CALLS,
    ),
    Mutant(
        "the key holds the index of the device",
        "python/rekindle/key/values/tensors.py",
        'return f"{device.type}#" if device == self.of_call and device.type != "cpu" else str(device)',
        "return str(device)",
        "test_an_entry_of_one_index_serves_another",
        _CALLS,
    ),
    Mutant(
        "the device's generator is not put back after a trial",
        "python/rekindle/process/random_states.py",
        "_native.set_random_states(states)",
        "_native.set_random_states(states[:1])",
        "other random numbers were drawn",
        _CALLS,
    ),
    Mutant(
        "random numbers of another device's generator are drawn from the call's",
        "python/rekindle/export/trace/trace_mode.py",
        "if drew - {position_of(self.device)}:",
        "if False:",
        "test_a_call_on_two_devices_is_eagers[noise of the host]",
        _CALLS,
    ),
    Mutant(
        "a result that eager has on the host stays on the device",
        "python/rekindle/export/torchscript/adapter.py",
        "if output.device != device:",
        "if False:",
        "test_a_call_on_two_devices_is_eagers[a result on the host]",
        _CALLS,
    ),
    Mutant(
        "the exporter makes its own tensors on the user's default device",
        "python/rekindle/process/torch_internals.py",
        "modes = [pop_function_mode() for _ in range(count_function_modes())][::-1]",
        "modes: list[Any] = []",
        "Segmentation fault",
        _CALLS,
    ),
    Mutant(
        "a backward in the device's thread runs without the user's default device",
        "python/rekindle/graphs/snapshot.py",
        "with without_function_modes(), under_function_modes(self._modes):",
        "with contextlib.nullcontext():",
        "was changed between a forward and its backward",
        _CALLS,
    ),
    Mutant(
        "what a backward reads in the device's thread is not seen",
        "python/rekindle/process/torch_internals.py",
        "torch.autograd.set_multithreading_enabled(False)",
        "torch.autograd.set_multithreading_enabled(True)",
        "test_what_a_function_reads_and_its_backward_are_part_of_the_key",
        ("--device", "test", "tests/python/test_python_ops.py"),
    ),
    Mutant(
        "an export without memory is an export that failed",
        "python/rekindle/calls/failures.py",
        "    if ran_out_of_memory(error):\n        _native",
        "    if False:\n        _native",
        "export_failed",
        _MEMORY,
    ),
    Mutant(
        "a run without memory is not tried again",
        "python/rekindle/calls/runtime.py",
        "or _native.release_idle_arenas() == 0:",
        "or True:",
        "the graph needs more memory for a call than there was left",
        _MEMORY,
    ),
    Mutant(
        "attention is taken apart on a device",
        "python/rekindle/export/torchscript/written_as_onnx.py",
        "return on_host and not",
        "return not",
        "attention_of_a_device_stays_one_operator",
        _CALLS,
    ),
    Mutant(
        "a kernel reads what other warps wrote without a barrier",
        "kernels/cuda/launch.cuh",
        "  if (lane == 0) shared[warp] = value;\n  __syncthreads();\n",
        "  if (lane == 0) shared[warp] = value;\n",
        "unwritten: ",
        program=_EMULATED,
    ),
    Mutant(
        "a kernel writes shared memory that others may still read",
        "kernels/cuda/launch.cuh",
        "  value = shared[0];\n  __syncthreads();\n",
        "  value = shared[0];\n",
        "race: ",
        program=_EMULATED,
    ),
    Mutant(
        "a barrier in one warp of a kernel",
        "kernels/cuda/launch.cuh",
        "    if (lane == 0) shared[0] = value;\n",
        "    if (lane == 0) shared[0] = value;\n    __syncthreads();\n",
        "divergent: ",
        program=_EMULATED,
    ),
    Mutant(
        "the wrong lane of a kernel has the sum",
        "kernels/cuda/launch.cuh",
        "  if (lane == 0) shared[warp] = value;\n",
        "  if (lane == 1) shared[warp] = value;\n",
        "as_good_as_eager",
        program=_EMULATED,
    ),
    Mutant(
        "a kernel adds one warp too many",
        "kernels/cuda/launch.cuh",
        "if (lane + offset < warps)",
        "if (lane + offset <= warps)",
        "as_good_as_eager",
        program=_EMULATED,
    ),
    Mutant(
        "a kernel writes one class too far",
        "kernels/cuda/cross_entropy.cu",
        "      dscores[offset + c] = score_gradient(problem, row, scale, offset, c);\n",
        "      dscores[offset + c + 1] = score_gradient(problem, row, scale, offset, c);\n",
        "out of bounds: ",
        program=_EMULATED,
    ),
)


def main() -> int:
    """Tries each mutant; returns 1 when one was not caught."""
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.name for word in sys.argv[1:])]
    outcomes = []
    for mutant in chosen:
        outcomes.append(outcome(mutant))
        print(f"{outcomes[-1]:8} {mutant.name}", flush=True)
    for program in {mutant.program for mutant in chosen}:
        build(program)
    print(f"{outcomes.count('caught')} of {len(chosen)} caught")
    return 0 if outcomes.count("caught") == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
