"""What starts and supervises the programs of one machine."""
