"""Where a ready graph comes from: the cache, another process or rank, an export; and why a call missed."""
