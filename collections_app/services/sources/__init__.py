"""Documents that are fetched: lists of addresses and prefixes of buckets."""
