"""From a query to ranked candidates: lists, fusion, compression."""
