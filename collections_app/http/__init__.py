"""What every page and every endpoint shares: keys, errors, pages of a list, downloads."""
