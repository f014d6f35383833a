"""The MPI server: HTTP front end and dispatcher on rank 0, workers on the others."""
