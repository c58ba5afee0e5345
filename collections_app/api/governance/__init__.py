"""Who may what over HTTP: roles, access lists of documents, API keys, and the audit log."""
