"""The allocation's other nodes: an agent or a relay on each."""
