"""The life of a wrapped module's calls: guard, look up, export, run, or eager with a reason."""
