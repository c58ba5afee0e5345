"""Questions for a number or a complete list, answered from all rows of tables, or all documents, or not at all."""
