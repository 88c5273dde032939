"""Describes what a call takes and returns: containers, views, memory layouts, and the contract of an entry that records them."""
