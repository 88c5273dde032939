"""What a trace would lose silently, seen and corrected while the module's forward runs."""
