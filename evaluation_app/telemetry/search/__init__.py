"""Finding spans: filters, the expression language, the query API."""
