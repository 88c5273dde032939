#include "session/run/error_note.h"

namespace rekindle::session {
namespace {

ErrorNote installed = nullptr;

}  // namespace

void set_error_note(ErrorNote note) { installed = note; }

void note_error(const std::string& text) {
  if (installed != nullptr) installed(text);
}

}  // namespace rekindle::session
