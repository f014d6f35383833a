"""Where what interference does can be read: one interface over counters, a probe and recordings."""
