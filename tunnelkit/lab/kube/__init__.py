"""A stand-in for a Kubernetes cluster: an API server for real kubectls, pods of local processes.

It is no Kubernetes: no scheduler, no containers, no networks. It speaks what kubectl and tk need:
get, list, create, delete of pods, events, access reviews, and exec by WebSocket (v5).
"""
