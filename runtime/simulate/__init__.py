"""The simulated driver: scenarios, their profiles and arrivals, runs, capacity and reports."""
