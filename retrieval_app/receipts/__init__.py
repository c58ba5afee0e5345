"""Receipts: signed records of answers, and their verification against an export."""
