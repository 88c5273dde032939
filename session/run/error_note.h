// Errors of other languages: code that a graph calls may raise what is no c10::Error, as Python does.
#pragma once

#include <string>

namespace rekindle::session {

// Adds `text`, the place in the graph, to the exception that is being handled, if it is of its kind. Called
// in a catch block, on the thread that ran the node; must not throw.
using ErrorNote = void (*)(const std::string& text);

// Installs the one for this process; called once, before any session runs.
void set_error_note(ErrorNote note);
// Calls it; does nothing without one.
void note_error(const std::string& text);

}  // namespace rekindle::session
