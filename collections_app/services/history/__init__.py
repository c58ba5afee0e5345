"""Collections as they were at an earlier time: read from what is stored, searched in a table of their own."""
