"""Makes an entry when none fits: exports, finds the open sizes, builds, compares with eager, hands over."""
