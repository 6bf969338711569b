"""Contact sheets, films and terminal pictures of what a preview shows."""
