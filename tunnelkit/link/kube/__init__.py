"""The link to pods: the user's own kubectl or oc, exec by WebSocket or by `kubectl exec`."""
