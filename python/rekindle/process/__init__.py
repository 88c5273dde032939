"""Guards what the interpreter and torch have once for the whole process: one owner at a time, and everything put back."""
