// The boundary of the room: what the libraries below throw becomes an Error here.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "src/base/result.h"

namespace rekindle {

template <typename Body>
auto guarded(const char* what, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return io_error(std::string("out of memory in the export cache: ") + what);
  } catch (const std::exception& e) {
    return internal_error(std::string("export cache, ") + what + ": " + e.what());
  }
}

}  // namespace rekindle
