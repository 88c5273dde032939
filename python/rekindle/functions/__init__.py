"""Custom autograd Functions in graphs: what users declare, how an entry names a call, how a session binds it."""
