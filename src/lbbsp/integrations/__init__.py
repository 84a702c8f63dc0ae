"""One boundary a framework; nothing here is imported until it is asked for."""
