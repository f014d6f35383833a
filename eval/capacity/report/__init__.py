"""The page and the tables about an evaluation."""
