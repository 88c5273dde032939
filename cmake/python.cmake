# The interpreter whose torch and onnx packages are used: Python_EXECUTABLE, else .venv, else what CMake finds.
if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
if(REKINDLE_TORCH AND REKINDLE_PYTHON)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
else()
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
endif()

# rekindle_python_package(VARIABLE NAME): sets VARIABLE to the directory of an installed package, without importing it.
function(rekindle_python_package variable name)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util, os, sys
spec = importlib.util.find_spec('${name}')
print(os.path.dirname(spec.origin) if spec and spec.origin else '')"
    OUTPUT_VARIABLE directory OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT directory)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no package ${name}; run scripts/setup, or install ${name} there")
  endif()
  set(${variable} ${directory} PARENT_SCOPE)
endfunction()
