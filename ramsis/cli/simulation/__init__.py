"""Commands that simulate: one load, a placement, a cluster, a grid."""
