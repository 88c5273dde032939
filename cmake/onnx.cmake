# rekindle_onnx_proto: the messages of the onnx package's onnx-ml.proto, as "onnx/onnx-ml.pb.h". Only src/graph's
# importer and exporter link it. Protobuf's lite runtime has no registry of message types, so that another copy of
# ONNX's messages in the process cannot collide with ours; libtorch_cpu exports none of the runtime's own functions.
# The runtime is shared because Debian's static one is not position-independent.
find_program(REKINDLE_PROTOC protoc REQUIRED)
find_library(REKINDLE_PROTOBUF libprotobuf-lite.so REQUIRED)
find_path(REKINDLE_PROTOBUF_INCLUDE google/protobuf/message_lite.h REQUIRED)
rekindle_python_package(onnx_dir onnx)

set(onnx_out ${PROJECT_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${onnx_out})
cmake_path(GET onnx_dir PARENT_PATH onnx_root)
add_custom_command(
  OUTPUT ${onnx_out}/onnx/onnx-ml.pb.cc ${onnx_out}/onnx/onnx-ml.pb.h
  COMMAND ${REKINDLE_PROTOC} --cpp_out=lite:${onnx_out} -I ${onnx_root} ${onnx_dir}/onnx-ml.proto
  DEPENDS ${onnx_dir}/onnx-ml.proto
  COMMENT "Generating the ONNX messages" VERBATIM)
add_library(rekindle_onnx_proto STATIC ${onnx_out}/onnx/onnx-ml.pb.cc ${onnx_out}/onnx/onnx-ml.pb.h)
target_include_directories(rekindle_onnx_proto SYSTEM PUBLIC ${onnx_out} ${REKINDLE_PROTOBUF_INCLUDE})
target_link_libraries(rekindle_onnx_proto PUBLIC ${REKINDLE_PROTOBUF} Threads::Threads)
