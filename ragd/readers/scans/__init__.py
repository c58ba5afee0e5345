"""Pages as pictures: drawn for a viewer, and read by text recognition (OCR)."""
