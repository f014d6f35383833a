"""What also runs in the environments of the servers: it imports nothing of Veltair's."""
