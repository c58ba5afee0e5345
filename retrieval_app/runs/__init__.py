"""Searches and answers, and the run that is kept of each."""
