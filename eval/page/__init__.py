"""What the HTML pages are made of: one document, style, table script and plots for all."""
