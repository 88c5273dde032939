"""Serves the calls of wrapped modules: guards, looks up, exports and runs graphs, or runs eager with a reason."""
