"""Who may what, from a shell: roles and the leak probe, the audit log, erasure."""
