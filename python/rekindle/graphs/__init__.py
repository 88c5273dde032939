"""Graphs that are ready to run: the guard before each call, the call itself, gradients of gradients."""
