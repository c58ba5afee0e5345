"""Golden questions as files: CSV and JSON Lines."""
