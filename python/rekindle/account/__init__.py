"""What memory a call takes: the account that rekindle.memory returns, as records, a table and pictures."""
