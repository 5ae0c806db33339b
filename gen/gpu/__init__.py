"""The GPU: the only place that talks to the driver."""
