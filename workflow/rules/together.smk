# This study has no rules of its own: its table and its figure are made from other studies' tables.
