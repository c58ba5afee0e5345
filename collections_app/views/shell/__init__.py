"""Pages of the product itself: its settings."""
