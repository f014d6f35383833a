"""The evaluation: how many queries a second each system serves within each model's target."""
