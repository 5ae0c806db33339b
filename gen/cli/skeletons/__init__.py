"""What `gen new` copies: families and algorithms that prove as they are. The word `mine` stands for the new name."""
