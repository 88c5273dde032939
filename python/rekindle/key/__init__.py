"""Makes the key of a call: a fingerprint of the module, its arguments and its surroundings, without running user code."""
