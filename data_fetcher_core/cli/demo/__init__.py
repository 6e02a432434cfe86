"""A crawl of a pretend site that is killed and started again before the reader's eyes."""
