"""Sees and corrects what a trace would lose silently, while the module's forward runs."""
