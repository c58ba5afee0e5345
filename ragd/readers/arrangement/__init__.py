"""The reading order and tables of a page from where its words and lines stand, be it a PDF's or of OCR."""
