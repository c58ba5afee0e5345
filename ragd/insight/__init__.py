"""What explains or compares results: parts of scores, what-if, recall."""
