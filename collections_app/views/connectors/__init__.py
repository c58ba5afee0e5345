"""The pages of the sources that a collection is kept in step with."""
