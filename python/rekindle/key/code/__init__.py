"""Code objects as parts of a key: digests, what their bytecode reads, the builds of libraries."""
