# LibTorch out of the chosen interpreter's torch package, and the CUDA language. Defines
#   rekindle_torch        headers and the CPU libraries: what kernels and session link
#   rekindle_torch_cuda   the CUDA half on top of it, defining REKINDLE_WITH_CUDA; an empty library without CUDA
#   rekindle_torch_python libtorch_python, for the extension
#   REKINDLE_HAS_CUDA     whether .cu files are compiled
# The libraries are named here directly: torch's own TorchConfig.cmake wants a whole CUDA toolkit even where nothing
# of CUDA is compiled, and overrules CMAKE_CUDA_ARCHITECTURES (docs/decisions/0002-torch-without-torchconfig.md).
rekindle_python_package(REKINDLE_TORCH_DIR torch)
# Read from its version.py: importing torch costs seconds and loads every CUDA library.
file(STRINGS ${REKINDLE_TORCH_DIR}/version.py torch_facts REGEX "^(__version__|cuda)[ :=]")
string(REGEX MATCH "__version__ = '([^']+)'" _ "${torch_facts}")
set(REKINDLE_TORCH_VERSION ${CMAKE_MATCH_1})
set(torch_cuda_version none)
if(torch_facts MATCHES "cuda[^=;]*= '([^']+)'")
  set(torch_cuda_version ${CMAKE_MATCH_1})
endif()
message(STATUS "torch ${REKINDLE_TORCH_VERSION} (CUDA ${torch_cuda_version}) in ${REKINDLE_TORCH_DIR}")

add_library(rekindle_torch INTERFACE)
target_include_directories(rekindle_torch SYSTEM INTERFACE
  ${REKINDLE_TORCH_DIR}/include ${REKINDLE_TORCH_DIR}/include/torch/csrc/api/include)
# ATen's parallel_for lives in headers and is serial without -fopenmp; the runtime must be the one torch uses.
file(GLOB torch_gomp ${REKINDLE_TORCH_DIR}/lib/libgomp*.so*)
target_compile_options(rekindle_torch INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fopenmp> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fopenmp>)
target_link_libraries(rekindle_torch INTERFACE
  ${REKINDLE_TORCH_DIR}/lib/libtorch_cpu.so ${REKINDLE_TORCH_DIR}/lib/libc10.so ${torch_gomp})
target_link_options(rekindle_torch INTERFACE -Wl,--allow-shlib-undefined)

add_library(rekindle_torch_python INTERFACE)
target_link_libraries(rekindle_torch_python INTERFACE rekindle_torch ${REKINDLE_TORCH_DIR}/lib/libtorch_python.so)

set(REKINDLE_HAS_CUDA OFF)
if(NOT REKINDLE_CUDA STREQUAL "OFF")
  include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
endif()
add_library(rekindle_torch_cuda INTERFACE)
target_link_libraries(rekindle_torch_cuda INTERFACE rekindle_torch)
if(REKINDLE_HAS_CUDA)
  target_compile_definitions(rekindle_torch_cuda INTERFACE REKINDLE_WITH_CUDA=1)
  target_link_libraries(rekindle_torch_cuda INTERFACE
    ${REKINDLE_TORCH_DIR}/lib/libtorch_cuda.so ${REKINDLE_TORCH_DIR}/lib/libc10_cuda.so CUDA::cudart)
endif()

# rekindle_precompile_torch(TARGET): precompiles the ATen headers that almost every file of a torch room includes.
function(rekindle_precompile_torch target)
  target_precompile_headers(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:<ATen/core/Tensor.h$<ANGLE-R>>
    $<$<COMPILE_LANGUAGE:CXX>:<functional$<ANGLE-R>>
    $<$<COMPILE_LANGUAGE:CXX>:<memory$<ANGLE-R>>
    $<$<COMPILE_LANGUAGE:CXX>:<string$<ANGLE-R>>
    $<$<COMPILE_LANGUAGE:CXX>:<vector$<ANGLE-R>>)
endfunction()
