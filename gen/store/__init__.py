"""What was measured: read and written, never guessed."""
