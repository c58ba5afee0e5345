"""What answers a question from sources: a chat model or quotations."""
