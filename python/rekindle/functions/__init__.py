"""Handles custom autograd Functions in graphs: takes what users declare, names calls in entries, and binds them in sessions."""
