"""Sources that a collection is kept in step with: set up, synced by a worker, on schedule or when asked."""
