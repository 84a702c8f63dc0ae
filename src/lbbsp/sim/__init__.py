"""Simulated clusters that run the shipped engine, predictors and policies."""
