"""Chat: threads of questions, follow-up questions, and what a thread is shared and exported as."""
