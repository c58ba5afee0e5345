"""The child process that parses under limits."""
