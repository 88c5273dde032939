"""What the interpreter and torch have once for the whole process: one owner at a time, everything put back."""
