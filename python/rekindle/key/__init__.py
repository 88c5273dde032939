"""The key of a call: a fingerprint of the module, its arguments and its surroundings, made without running user code."""
