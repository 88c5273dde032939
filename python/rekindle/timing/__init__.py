"""Where the time of a training step goes: the profile that rekindle.profile returns, as records, a table, a picture, a trace."""
