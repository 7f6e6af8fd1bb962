"""Tables: schemas, joining of row files, writing, comparison with references."""
