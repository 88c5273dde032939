// Forking a process that is busy with something else, for a helper that works on its memory.
#pragma once

#include <sys/types.h>

namespace rekindle::python {

// Forks this process, with Python's hooks for it, as os.fork() does, but warns of no thread: what the child
// may use is its caller's to know. Needs the GIL. Returns the child's number in the parent, 0 in the child,
// -1 with errno set.
//
// The child shares no open file with the parent but `kept`: each other descriptor, the standard ones too, is
// of /dev/null then. So nobody waits for the child to close a pipe or socket, and what it prints goes
// nowhere. It runs at the lowest priority, is the first to go when memory runs out, leaves no core, and
// SIGALRM ends it after `seconds`.
pid_t fork_helper(int kept, unsigned seconds);

}  // namespace rekindle::python
