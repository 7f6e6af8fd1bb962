"""From answers to rows of tables, and from rows to verdicts."""
