"""Handles sizes that a graph leaves open: symbols, the shapes of an entry, and the integers that a forward sees meanwhile."""
