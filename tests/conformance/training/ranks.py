"""Two ranks on gloo: DDP, sharded optimizers, sharded parameters; each program's main starts its ranks itself."""
