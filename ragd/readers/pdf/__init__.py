"""PDF over pdfium: its text, its words with their boxes, its columns and tables."""
