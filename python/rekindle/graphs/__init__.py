"""Runs graphs that are ready: the guard before each call, the call itself, gradients of gradients."""
