"""Do two patches belong to the same object? (arXiv 2510.24709)."""
