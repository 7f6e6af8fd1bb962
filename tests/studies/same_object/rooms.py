"""Which products hold which module of this study; see tests/workflow/test_code_keys.py.

The preset of these tests has no fits of pairs: no product holds a module of this study but those
that every run has.
"""

TABLES: set[str] = set()
FIGURES: set[str] = set()
