"""The nodes of a Citus cluster: what is where, and moving it."""
