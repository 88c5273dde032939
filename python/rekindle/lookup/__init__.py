"""Gets ready graphs from where there are any: the cache, another process or rank, an export; and says why a call missed."""
