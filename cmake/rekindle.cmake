# Compiler settings and the functions by which rooms and tests declare themselves.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# ccache, where it is installed; precompiled headers need its leave to look past time stamps.
find_program(REKINDLE_CCACHE ccache)
if(REKINDLE_CCACHE)
  set(ccache ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${REKINDLE_CCACHE})
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${ccache})
    endif()
  endforeach()
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()
include(TestBigEndian)
test_big_endian(REKINDLE_BIG_ENDIAN)
if(REKINDLE_BIG_ENDIAN)
  message(FATAL_ERROR "Rekindle's stored formats are little-endian; big-endian machines are not supported")
endif()

add_library(rekindle_options INTERFACE)
target_include_directories(rekindle_options INTERFACE ${PROJECT_SOURCE_DIR})
# GCC 12 is wrong about the copies inside `"x" + std::string` (-Wrestrict, -Wstringop-overflow), and about a vector that is
# copied and freed in one function (-Wfree-nonheap-object).
target_compile_options(rekindle_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-restrict;-Wno-stringop-overflow;-Wno-free-nonheap-object>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${REKINDLE_DEV}>>:-Werror>)
if(REKINDLE_DEV)
  target_compile_definitions(rekindle_options INTERFACE REKINDLE_DEV=1)
endif()
if(REKINDLE_SANITIZE)
  target_compile_options(rekindle_options INTERFACE -fsanitize=${REKINDLE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(rekindle_options INTERFACE -fsanitize=${REKINDLE_SANITIZE})
  if(REKINDLE_SANITIZE MATCHES undefined)
    # It asks for file descriptors, and finds fault with every object in a test that has none left.
    target_compile_options(rekindle_options INTERFACE -fno-sanitize=vptr)
  endif()
endif()
if(REKINDLE_FUZZ)
  target_compile_options(rekindle_options INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()

# rekindle_compile_together(TARGET): its sources are compiled eight at a time, as reading headers takes nine tenths of
# the time of most. Files of one target thus share one namespace {}: names in it differ. REKINDLE_UNITY=OFF compiles each
# file alone, which an edit of one file likes better.
function(rekindle_compile_together target)
  if(REKINDLE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# rekindle_room(NAME [PUBLIC libs...] [PRIVATE libs...]): the room in the current directory, as rekindle_NAME.
# An OBJECT library, so that no linker drops a registrar. Every .cc below the directory belongs to it.
function(rekindle_room name)
  cmake_parse_arguments(ROOM "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_library(rekindle_${name} OBJECT ${sources})
  target_link_libraries(rekindle_${name} PUBLIC rekindle_options ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
  rekindle_compile_together(rekindle_${name})
endfunction()

# rekindle_precompile_for_tests(TARGET): precompiles REKINDLE_TEST_HEADERS, such as ATen/ATen.h, then Catch2; or takes what
# the target REKINDLE_TEST_HEADERS_OF has. GCC lets others define more, and change no option.
function(rekindle_precompile_for_tests target)
  if(REKINDLE_TEST_HEADERS_OF AND NOT REKINDLE_TEST_HEADERS_OF STREQUAL target)
    target_precompile_headers(${target} REUSE_FROM ${REKINDLE_TEST_HEADERS_OF})
    return()
  endif()
  set(headers ${REKINDLE_TEST_HEADERS} string vector catch2/catch.hpp)
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# rekindle_test(NAME rooms...): one Catch2 executable of every tests/NAME/*_test.cc, known to ctest by test case.
# ctest passes it REKINDLE_TEST_FILTER, where that is set.
function(rekindle_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources} $<TARGET_OBJECTS:rekindle_test_main>)
  target_compile_definitions(${name}_test PRIVATE REKINDLE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/golden")
  target_link_libraries(${name}_test PRIVATE ${ARGN} Catch2::Catch2)
  target_compile_options(${name}_test PRIVATE -O1)  # three quarters of the time of -O3; the work is done in the rooms
  rekindle_precompile_for_tests(${name}_test)
  add_test(NAME ${name} COMMAND ${name}_test ${REKINDLE_TEST_FILTER})
endfunction()
