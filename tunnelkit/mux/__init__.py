"""The asyncio driver of the wire: runs an Endpoint over file descriptors.

Shared by the agent and the laptop, so Python 3.8 and the standard library only.
"""
