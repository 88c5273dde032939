# What `pip install .` and scripts/wheel put into site-packages: rekindle/_native*.so and, in the scripts directory, the
# rekindle command. With REKINDLE_BUNDLE also, in rekindle/lib, every shared library that is neither torch's nor the
# system's C and C++ runtime. Old-style RPATHs (--disable-new-dtags) serve a library's own dependencies as well.
set(python_lib python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
target_link_options(_native PRIVATE -Wl,--disable-new-dtags)
set_target_properties(_native PROPERTIES
  INSTALL_RPATH "$ORIGIN/lib:$ORIGIN/../torch/lib:$ORIGIN/../nvidia/cu13/lib")
target_link_options(rekindle_cli PRIVATE -Wl,--disable-new-dtags)
set_target_properties(rekindle_cli PROPERTIES
  INSTALL_RPATH "$ORIGIN/../lib/${python_lib}/site-packages/rekindle/lib")

if(NOT DEFINED SKBUILD_SCRIPTS_DIR)
  set(SKBUILD_SCRIPTS_DIR bin)
endif()
install(TARGETS _native LIBRARY DESTINATION rekindle)
install(TARGETS rekindle_cli RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR})

if(REKINDLE_BUNDLE)
  install(CODE "set(module \"$<TARGET_FILE:_native>\")\nset(command \"$<TARGET_FILE:rekindle_cli>\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/bundle.cmake)
endif()
