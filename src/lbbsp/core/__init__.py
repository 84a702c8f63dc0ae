"""The pure core: sizing, prediction, weights and order, without clock, I/O or randomness of its own."""
