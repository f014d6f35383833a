"""`veltair report`: one self-contained HTML page about an artifact's layers and versions."""
