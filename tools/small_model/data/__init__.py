"""What the small model learns from: synthetic tasks with exact answers, rendered, tokenized and packed. See README.md."""
