"""The figures of the Traces page and the sums that they come from."""
