"""The pages of questions, runs and the playground."""
