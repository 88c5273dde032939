# Run at install time: copies the shared libraries that `module` and `command` need into rekindle/lib, by soname.
# Left out: torch's and NVIDIA's (the torch package brings them) and the runtimes that any Linux system has.
file(GET_RUNTIME_DEPENDENCIES
  LIBRARIES ${module} EXECUTABLES ${command}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES
    "^lib(torch|c10|shm|cu|nv|nccl)" "^libgomp" "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so")
if(missing)
  message(FATAL_ERROR "these shared libraries were not found, so they cannot be bundled: ${missing}")
endif()
set(destination $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/rekindle/lib)
file(MAKE_DIRECTORY ${destination})
foreach(library IN LISTS found)
  cmake_path(GET library FILENAME name)
  file(REAL_PATH ${library} file)
  message(STATUS "Bundling: ${name}")
  file(COPY_FILE ${file} ${destination}/${name})
endforeach()
