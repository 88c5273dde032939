"""Records what user code did while an export ran: the code that ran, what it read, and whether that still holds."""
