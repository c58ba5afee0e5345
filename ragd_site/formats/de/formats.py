"""Numbers as the machine reads them: templates write them into SVG, CSS and inputs too.

What people read goes through a filter of `collections_app.templatetags.interface`, which writes them as the language
does.
"""

from __future__ import annotations

DECIMAL_SEPARATOR = "."
THOUSAND_SEPARATOR = ","
NUMBER_GROUPING = 0
