"""The Chat page: threads, questions, and the answer while it is written."""
