"""From a stored run to its scores."""
