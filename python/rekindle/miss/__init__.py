"""What happens when no entry fits: export, find the open sizes, build, compare with eager, hand over."""
