"""Forms of the pages of collections."""
