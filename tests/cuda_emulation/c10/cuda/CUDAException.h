// Stands in for torch's header in emulated kernels: faults are thrown by the machine.
#pragma once

#define C10_CUDA_CHECK(call) static_cast<void>(call)
