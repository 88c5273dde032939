"""Tells how far a graph's results may be from eager's, and whether they are within that."""
