"""A crawl that is killed half-way before the reader's eyes, and the account of it."""
