"""Clusters described by a file."""

from lbbsp.sim.cluster.build import Cluster, Span
from lbbsp.sim.cluster.load import cluster_of, load_cluster

__all__ = ["Cluster", "Span", "cluster_of", "load_cluster"]
