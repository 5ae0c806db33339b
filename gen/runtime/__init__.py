"""Calls the kernel that was chosen for a device, from Python."""
