"""Collections: made, changed, checked, deleted."""
