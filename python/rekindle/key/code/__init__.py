"""Describes code objects as parts of a key: their digests, what their bytecode reads, the builds of libraries."""
