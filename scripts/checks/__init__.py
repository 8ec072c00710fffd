"""The rules of scripts/lint, one file a concern."""
