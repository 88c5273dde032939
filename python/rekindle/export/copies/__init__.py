"""Makes private copies of a module and a call, on which exports and trials run."""
