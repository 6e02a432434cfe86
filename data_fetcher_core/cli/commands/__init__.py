"""The commands, one file each: what they take, and whom they ask. What they do is elsewhere."""
